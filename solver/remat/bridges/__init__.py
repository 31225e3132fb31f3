"""Import from and export to other programs: one folder per foreign format or package."""

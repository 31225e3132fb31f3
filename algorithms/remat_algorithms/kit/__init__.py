"""Tools that the families share. They are for the zoo: no promises to anybody else."""

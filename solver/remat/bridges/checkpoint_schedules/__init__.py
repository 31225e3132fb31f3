"""Plans for codes that follow the public package checkpoint_schedules (LGPL, never required)."""

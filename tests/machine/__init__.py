"""What every room takes from the machine: whole files, ended processes, moved output."""

"""The services of the machine: complete files, ended processes, copied output."""

"""Drivers for the stores that agent frameworks ship. Each module needs its framework; `./dev torture` installs it."""

"""What every verb uses: the parsed call, output, exit codes, tables."""

"""The `onrecord` command: `main` dispatches, `catalogue` lists the verbs, one small module for each family of verbs."""

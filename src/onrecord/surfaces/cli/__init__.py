"""The `onrecord` command: `main` dispatches, `verbs` is the catalogue, one small module for each family of verbs."""

"""The recording proxy: an OpenAI-compatible endpoint that puts every turn of a rollout on record, token by token."""

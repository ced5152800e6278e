"""Tokens: the prompts and answers of a policy in training, id by id, and the samples made from them."""

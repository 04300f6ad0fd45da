"""Spatio-temporal keyword queries: where, when, and which words (KV-STK, on MongoDB).

`settings` says what a collection keeps for them, `wording` what a query wants of the words, `keys` and `pruning` which
cubes of place and time can hold an answer, `filter_store` and `filter_cache` where that knowledge lives, `sealing` how
documents get into it, `planning` what is sent.
"""

"""The only door out of an agent's container: what may pass, what it costs, and a journal of all of it.

`server.serve(folder)` is the way in; beside it only `prices.load` and `redact.Redactor` are for the rest of the tool.
"""

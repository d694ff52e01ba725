"""The gateway: the only connection out of an agent's container. It checks, meters and journals every request.

Call `server.serve(folder)`. The rest of the tool also uses `prices.load` and `redact.Redactor`, and nothing else here.
"""

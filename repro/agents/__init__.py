"""The agents that write solutions, as they work inside their sandbox: session, tools, relay."""

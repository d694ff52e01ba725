"""The agent study as an Inspect task: sandbox, scripted replies, knowledge as tools, sittings, the judge as scorer."""

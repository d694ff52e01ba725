"""The sandbox: starts, confines, stops and ends workers, and talks to them."""

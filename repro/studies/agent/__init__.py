"""The agent study from outside: arms, order, attempts, and the judging of what agents submit."""

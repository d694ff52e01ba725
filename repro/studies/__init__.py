"""The studies: verdicts on solutions, the artifact study, the agent study, the self-test of the judge."""

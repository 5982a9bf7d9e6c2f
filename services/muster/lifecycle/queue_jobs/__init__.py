"""QueueJobs: what is to be done about one (plan), in which order for all (order), and who does it (controller)."""

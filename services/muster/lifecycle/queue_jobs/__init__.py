"""QueueJobs: one job's next steps (plan), creation of pods by job priority (pod_creation), and the controller."""

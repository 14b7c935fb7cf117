"""`handrail sessions show --conversation`: prints the transcript of a session in several formats, and follows a run."""

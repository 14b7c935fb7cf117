"""Feedback: advice to the model that is added to the message of a call."""

"""The adapters that come with the harness, a few files for each engine; nothing else imports an engine."""

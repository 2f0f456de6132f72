"""A dataset folder → what others read: harnesses' tasks, metadata, flat files."""

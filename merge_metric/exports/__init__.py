"""A dataset folder → what others read; `registry` says how an export registers itself."""

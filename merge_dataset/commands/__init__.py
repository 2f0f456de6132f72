"""Commands on dataset folders; `command_line` is the scaffolding of all commands."""

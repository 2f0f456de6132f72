"""The command `merge-nli`; Ctrl+C while it is still being imported is told in a line, too."""

from __future__ import annotations

import signal


def main() -> None:
    """Import the commands and run one."""
    pressed: list[int] = []
    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:  # a shell has it ignored in the background
        signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    from generation import cli

    signal.signal(signal.SIGINT, usual)
    cli.main(is_stopped=bool(pressed))


if __name__ == "__main__":
    main()

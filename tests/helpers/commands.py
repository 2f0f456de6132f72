from typer.testing import CliRunner, Result

from generation.cli import app

_RUNNER = CliRunner(env={"COLUMNS": "200", "TERM": "dumb"})


def run(*words: object, code: int = 0) -> Result:
    result = _RUNNER.invoke(app, [*map(str, words)])
    assert result.exit_code == code, result.output
    return result


def refused(*words: object, code: int = 2) -> str:
    """Run a command that must print nothing on stdout; return its stderr."""
    result = run(*words, code=code)
    assert result.stdout == ""
    return result.stderr

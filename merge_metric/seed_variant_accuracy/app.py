"""The metric in a browser: type predictions in or upload a file, and read the figures.

Run it in this folder, whatever the folder is called: `python app.py`. It needs Gradio 6, and
pyarrow for Parquet files, and asks nothing of the network.
"""

from __future__ import annotations

import asyncio
import html
import importlib.util
import os
import socket
import sys
from collections.abc import Callable, Mapping
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Final

try:
    import gradio as gr
    import pandas as pd  # type: ignore[import-untyped]
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
except ModuleNotFoundError as error:
    if __name__ != "__main__":
        raise
    sys.stderr.write(
        f"error: this page needs {error.name}; run: pip install 'merge-nli[app]', or without "
        f"merge-nli: pip install -r {Path(__file__).with_name('requirements.txt')}\n"
    )
    sys.exit(2)


def _as_package(folder: Path, name: str = "seed_variant_accuracy") -> str:
    """Make a folder importable under a name that need not be its own; returns the name."""
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None
    assert spec.loader is not None
    sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(sys.modules[name])
    return name


if not __package__:  # run as a script, where relative imports would have nothing to relate to
    __package__ = _as_package(Path(__file__).resolve().parent)

from .app_inputs import (  # noqa: E402
    EXAMPLE,
    HEADERS,
    REPLICATES_AT_MOST,
    ROWS_AT_MOST,
    TABLE,
    PageInput,
    read_file,
    read_table,
    whole,
)
from .app_view import (  # noqa: E402
    AXES,
    COLOURS,
    LINE,
    STYLE,
    curve_points,
    curve_text,
    distributions_table,
    download,
    figures_table,
    labels_table,
    summary,
)
from .options import LABELS  # noqa: E402
from .scoring import score  # noqa: E402

MAX_FILE_SIZE: Final = "200mb"

MAX_CONNECTIONS: Final = 128
"""Most that are open at a time; some systems let a process open 256 files."""

_FULL: Final = b"Too many connections are open: please try again in a moment.\n"
_BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n"
    b"Content-Length: %d\r\n\r\n%b" % (len(_FULL), _FULL)
)
HOUR: Final = 3600
LOOPBACK: Final = ("127.0.0.1", "localhost")
FONTS: Final = ["system-ui", "-apple-system", "Segoe UI", "Roboto", "Arial", "sans-serif"]
MONO_FONTS: Final = ["ui-monospace", "Menlo", "Consolas", "monospace"]

INTRO: Final = """
<h1>Seed-variant accuracy</h1>
<p>Does a model that answers a problem right also answer its minimal variants right? A
<em>seed</em> is an original problem; its <em>variants</em> differ from it in one word and have the
same gold label. SV accuracy at a correctness threshold is the share of seeds with at least that
percentage of their variants classified right.</p>
"""
TABLE_HELP: Final = (
    f"One row per variant. Labels: {', '.join(LABELS)}, or 0, 1, 2. "
    "The menu of a cell (right click) adds and deletes rows; empty ones do not count."
)
FILE_HELP: Final = f"""
Parquet or JSON Lines, at most {ROWS_AT_MOST:,} rows: one per seed and per variant, with
`variant_id`, `seed_id`, `label`, `prediction` and, if there are any, `probabilities`. In a seed's
own row, `variant_id` equals `seed_id`. Each variant counts once; figures averaged over the
subsamples of a dataset come from the metric itself.
"""


# --- Answers ---


@dataclass(frozen=True, slots=True)
class PageContents:
    """Contents of the page, one field per output; after an error only the message."""

    message: str = ""
    summary: str = ""
    figures: str = ""
    curve: pd.DataFrame | None = None
    marks: str = ""
    labels: str = ""
    signature: str = ""
    download: str = ""


def answer(
    source: PageInput,
    correctness_threshold: float | None,
    n_bootstrap: float | None,
    rng_seed: float | None,
) -> PageContents:
    """Compute and present.

    Raises:
        ValueError: a setting or the data cannot be used.
    """
    threshold = whole("Correctness threshold", correctness_threshold, least=1, most=100)
    result = score(
        **source.arguments,
        correctness_threshold=threshold,
        n_bootstrap=whole("Bootstrap replicates", n_bootstrap, most=REPLICATES_AT_MOST),
        rng_seed=whole("Random seed", rng_seed, most=2**53),
    )
    return PageContents(
        summary=summary(source.name, result),
        figures=figures_table(result, threshold),
        curve=curve_points(result, threshold),
        marks=curve_text(result, threshold),
        labels=labels_table(result, threshold) + distributions_table(result),
        signature=result["signature"],
        download=download(result),
    )


def failure(error: ValueError) -> PageContents:
    """Show an error of the input in words."""
    return PageContents(
        message="<div class='sva-note sva-error' role=alert><strong>Nothing was computed.</strong> "
        f"{html.escape(str(error))}</div>"
    )


# --- Events ---


def from_table(rows: list[list[Any]], *settings: float | None) -> tuple[Any, ...]:
    """Compute from the table of the page."""
    return _respond(lambda: read_table(rows), settings)


def from_file(path: str, *settings: float | None) -> tuple[Any, ...]:
    """Compute from an uploaded file."""
    return _respond(lambda: read_file(Path(path)), settings)


def again(source: PageInput | None, *settings: float | None) -> tuple[Any, ...]:
    """Compute from what was read before, with new settings."""
    if source is None:
        return (None, *[gr.skip()] * (1 + len(astuple(PageContents()))))
    return _respond(lambda: source, settings)


def edited(source: PageInput | None) -> tuple[Any, ...]:
    """Hide the figures of what an edited table held before."""
    if source is None or source.name != TABLE:
        return source, gr.skip(), gr.skip()
    note = "<div class=sva-note>The table has changed: press Compute for its figures.</div>"
    return None, note, gr.Column(visible=False)


def _respond(read: Callable[[], PageInput], settings: tuple[float | None, ...]) -> tuple[Any, ...]:
    """Return the source for `again`, message, visibility of results, and the results."""
    source = None
    try:
        source = read()
        shown = answer(source, *settings)
    except ValueError as error:
        shown = failure(error)
    message, *results = astuple(shown)
    return source, message, gr.Column(visible=not message), *results


# --- The page ---


def build() -> gr.Blocks:
    """Build the page and connect its parts."""
    page = gr.Blocks(
        title="Seed-variant accuracy", analytics_enabled=False, delete_cache=(HOUR, HOUR)
    )
    with page:
        source = gr.State(None, time_to_live=HOUR)
        gr.HTML(INTRO, elem_id="sva-intro")
        with gr.Row():
            with gr.Column(scale=3, min_width=320), gr.Tabs():
                with gr.Tab("Type in"):
                    gr.Markdown(TABLE_HELP)
                    table = gr.Dataframe(
                        [list(row) for row in EXAMPLE],
                        headers=list(HEADERS),
                        column_count=len(HEADERS),
                        type="array",
                        interactive=True,
                        show_label=False,
                        max_height=380,
                        elem_id="sva-input",
                    )
                    compute = gr.Button("Compute", variant="primary", elem_id="sva-compute")
                with gr.Tab("Upload a file"):
                    gr.Markdown(FILE_HELP)
                    upload = gr.File(
                        label="Predictions",
                        file_types=[".parquet", ".jsonl"],
                        elem_id="sva-upload",
                    )
            with gr.Column(scale=2, min_width=280):
                settings = _settings()
        message = gr.HTML(elem_id="sva-message")
        with gr.Column(visible=False) as results:
            outputs = [message, results, *_outputs()]
        respond: dict[str, Any] = {
            "outputs": [source, *outputs],
            "api_visibility": "private",
            "show_progress": "minimal",
        }
        quick = {**respond, "outputs": [source, message, results], "queue": False}
        table.input(edited, source, **quick)
        for trigger in (page.load, compute.click):
            trigger(from_table, [table, *settings], **respond)
        upload.upload(from_file, [upload, *settings], **respond)
        changes = [setting.change for setting in settings]
        gr.on(changes, again, [source, *settings], trigger_mode="always_last", **respond)
    return page


def _settings() -> list[gr.Slider | gr.Number]:
    return [
        gr.Slider(
            1,
            100,
            value=90,
            step=1,
            label="Correctness threshold (CT), %",
            info="How many of a seed's variants must be right",
            elem_id="sva-threshold",
        ),
        gr.Number(
            1000,
            label="Bootstrap replicates",
            info=f"0 to {REPLICATES_AT_MOST:,}; 0 leaves the intervals out",
            elem_id="sva-replicates",
        ),
        gr.Number(
            0,
            label="Random seed",
            info="The same number gives the same intervals",
            elem_id="sva-rng-seed",
        ),
    ]


def _outputs() -> list[gr.components.Component]:
    """Make a component per field of `PageContents` after the message, in its order."""
    line = gr.HTML(elem_id="sva-summary")
    with gr.Row():
        with gr.Column(scale=3, min_width=320):
            figures = gr.HTML(elem_id="sva-figures")
        with gr.Column(scale=2, min_width=320):
            curve = gr.LinePlot(
                x=AXES[0],
                y=AXES[1],
                color=LINE,
                color_map=COLOURS,
                colors_in_legend=[name for name in COLOURS if name == name.strip()],
                x_lim=[0, 100],
                y_lim=[0, 100],
                color_title=" ",
                height=340,
                label="SV curve",
                show_label=False,
                elem_id="sva-curve",
            )
            marks = gr.HTML(elem_id="sva-marks")
    labels = gr.HTML(elem_id="sva-labels")
    signature = gr.Textbox(
        label="Signature",
        info="Says all that determines the figures; quote it beside them",
        interactive=False,
        buttons=["copy"],
        elem_id="sva-signature",
    )
    link = gr.HTML(elem_id="sva-download")
    return [line, figures, curve, marks, labels, signature, link]


def trusted_hosts(environment: Mapping[str, str]) -> list[str]:
    """List the names that a request may call this server by.

    Other pages in a reader's browser can point a name of theirs at this machine; under such a
    name they get nothing. Whoever has the page served to others is reached by any name, be it
    as a Space or at the address that `GRADIO_SERVER_NAME` gives.

    >>> trusted_hosts({})
    ['127.0.0.1', 'localhost']
    >>> trusted_hosts({"GRADIO_SERVER_NAME": "0.0.0.0"})
    ['*']
    """
    address = environment.get("GRADIO_SERVER_NAME", LOOPBACK[0])
    is_ours = address in LOOPBACK and "SPACE_ID" not in environment
    return list(LOOPBACK) if is_ours else ["*"]


class _Refusal(asyncio.Protocol):
    """Answers a connection beyond the last, and closes it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        transport.write(_BUSY)
        transport.close()


def bound_connections(server: Any, most: int = MAX_CONNECTIONS) -> None:
    """Let a server have so many connections at a time.

    uvicorn's own limit is for requests: whoever asks nothing could hold every file open that the
    process may have.
    """
    config, serve = server.config, server.config.http_protocol_class

    def protocol(**given: Any) -> asyncio.Protocol:
        is_full = len(given["server_state"].connections) >= most
        return _Refusal() if is_full else serve(**given)

    config.http_protocol_class = protocol
    for listener in (each for listening in server.servers for each in listening.sockets):
        with socket.fromfd(listener.fileno(), listener.family, listener.type) as same:
            same.listen(most // 2)  # asyncio accepts all that wait before it looks at one


def main() -> None:
    """Serve the page; Gradio reads address and port from its environment variables."""
    # Fonts of the reader's system, and small print that can be read.
    theme = gr.themes.Default(primary_hue="blue", font=FONTS, font_mono=MONO_FONTS).set(
        body_text_color_subdued="*neutral_600",
        body_text_color_subdued_dark="*neutral_300",
        block_info_text_color="*neutral_600",
        block_info_text_color_dark="*neutral_300",
    )
    check_host = Middleware(TrustedHostMiddleware, allowed_hosts=trusted_hosts(os.environ))
    page = build()
    page.launch(
        app_kwargs={"middleware": [check_host]},
        theme=theme,
        head=f"<style>{STYLE}</style>",  # Gradio rewrites what it gets as css
        max_file_size=MAX_FILE_SIZE,
        run_history=False,
        ssr_mode=False,
        footer_links=[],
        prevent_thread_lock=True,
    )
    bound_connections(page.server)
    page.block_thread()


if __name__ == "__main__":
    main()

"""The report in a real browser: at the widths of a phone, a tablet and a screen, light and dark."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fedul_flwr.results.report as report_module
from fedul_flwr.results.report import report
from tests.results.test_report import HOSTILE, write_comparison, write_measures
from tests.support.synthetic_results import write_json, write_label_run, write_run

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
WIDTHS = (400, 800, 1600)
LONG = "n" * 150
Seen = tuple[str, list[dict[str, Any]]]
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync --hide-scrollbars "
    "--enable-logging=stderr --dump-dom"
)
PROBE = """<!DOCTYPE html><meta name="color-scheme" content="light dark"><body>{frames}<pre></pre>
<script>
const rgb = (color) => color.match(/[\\d.]+/g).map(Number);
const light = (color) => rgb(color).slice(0, 3)
  .map((x) => (x /= 255) <= 0.04045 ? x / 12.92 : ((x + 0.055) / 1.055) ** 2.4)
  .reduce((sum, x, i) => sum + [0.2126, 0.7152, 0.0722][i] * x, 0);
const behind = (element) => {{
  for (; element; element = element.parentElement) {{
    const color = getComputedStyle(element).backgroundColor;
    if ((rgb(color)[3] ?? 1) === 1) return color;
  }}
  return "rgb(255, 255, 255)";
}};
const contrast = (element) => {{
  const [a, b] = [light(getComputedStyle(element).color), light(behind(element))];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
}};
addEventListener("load", () => {{
  const found = [...document.querySelectorAll("iframe")].map((frame) => {{
    const page = frame.contentDocument;
    page.querySelectorAll("details").forEach((part) => {{ part.open = true; }});
    const written = [...page.body.querySelectorAll("*")].filter((element) =>
      [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim()));
    return {{
      width: page.documentElement.scrollWidth,
      images: page.images.length,
      missing: [...page.images].filter((image) => !image.naturalWidth).length,
      cut: [...page.images].filter((one) => {{
        const box = one.parentElement;
        return box.scrollWidth > box.clientWidth;
      }}).length,
      smallest: Math.min(...[...page.images].map((one) => {{
        one.parentElement.focus();
        return one.width / one.getAttribute("width");
      }})),
      filters: [...new Set([...page.images].map((image) => getComputedStyle(image).filter))],
      faint: written.filter((one) => contrast(one) < 4.5).map((one) => one.outerHTML),
      page: light(getComputedStyle(page.body).backgroundColor),
      requests: frame.contentWindow.performance.getEntriesByType("resource")
        .map((entry) => entry.name).filter((name) => !name.startsWith("data:")),
    }};
  }});
  document.querySelector("pre").textContent = JSON.stringify(found);
}});</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed")
    return found


def disclosed() -> dict[str, Any]:
    """What a run among owners says of what left them, with long names."""
    sent = [{"what": what, "reader": "the server", "often": "once"} for what in (LONG, "the model")]
    return {"settings": "0" * 64, "sent": sent, "unprotected": ["The server sees it.", LONG]}


@pytest.fixture(scope="module")
def pages(browser: str, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """A report on runs of all kinds with long and hostile names, and one on a comparison."""
    place = tmp_path_factory.mktemp("pages")
    few = write_run(place / "a", sets=1, dataset=LONG, finished=False, with_counts=True)
    write_measures(few, 10)
    write_json(few / "disclosures.json", disclosed())
    runs = [
        few,
        write_run(place / "b", sets=1, rounds=2, class_names=(*HOSTILE, LONG), momentum=0.9),
        write_label_run(place / "c"),
    ]
    compared = write_comparison(place / "d", LONG[:80])
    save = report_module.save_plots

    def save_one(figures: Any, directory: Path) -> list[Path]:
        return save({name: figures[name] for name in figures if name == "error"}, directory)

    with pytest.MonkeyPatch.context() as patch:  # the page has pictures of its own
        patch.setattr(report_module, "save_plots", save_one)
        return [report(runs, place / "runs.html"), report([compared])]


@pytest.fixture(scope="module", params=["light", "dark"])
def seen(
    request: pytest.FixtureRequest,
    browser: str,
    pages: list[Path],
    tmp_path_factory: pytest.TempPathFactory,
) -> Seen:
    """The color scheme, and what a browser finds in each page at each width."""
    place = tmp_path_factory.mktemp(request.param)
    frames = "".join(
        f'<iframe width="{width}" height="900" srcdoc="{html.escape(page.read_text())}"></iframe>'
        for page in pages
        for width in WIDTHS
    )
    (place / "probe.html").write_text(PROBE.format(frames=frames))
    scheme = f"--blink-settings=preferredColorScheme={int(request.param == 'light')}"
    done = subprocess.run(
        [
            browser,
            *FLAGS.split(),
            scheme,
            f"--user-data-dir={place / 'profile'}",
            f"file://{place / 'probe.html'}",
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    found = re.search("<pre>(.+?)</pre>", done.stdout)
    assert found is not None
    return request.param, json.loads(html.unescape(found[1]))


def test_given_any_width_then_the_page_is_no_wider_and_asks_no_host(seen: Seen) -> None:
    _, pages = seen
    assert [page["width"] for page in pages] == [*WIDTHS, *WIDTHS]
    assert all(page["images"] for page in pages)
    assert not any(page["missing"] or page["requests"] for page in pages)


def test_given_any_width_then_no_picture_is_cut_and_all_are_readable(seen: Seen) -> None:
    _, pages = seen
    assert [page["cut"] for page in pages] == [0] * len(pages)
    assert all(page["smallest"] > 0.7 for page in pages)


def test_given_a_color_scheme_then_page_and_text_can_be_read(seen: Seen) -> None:
    scheme, pages = seen
    for page in pages:
        assert page["faint"] == []  # contrast of at least 4.5 (WCAG 2.2, AA)
        assert page["page"] > 0.8 if scheme == "light" else page["page"] < 0.05
        assert ["invert" in value for value in page["filters"]] == [scheme == "dark"]

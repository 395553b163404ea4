"""The page: how its files are served, and that script, page and API know each other."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from selector.models import presets
from selector.resources import packaged
from selector.service.access import EXPLORER
from selector.service.handlers import ROUTES
from tests.unit.service.conftest import Serve, Served

FOLDER = packaged("service/explorer")
SCRIPTS = {
    name: (FOLDER / name).read_text("utf-8") for name, _ in EXPLORER.values() if name[-3:] == ".js"
}
SCRIPT = "\n".join(SCRIPTS.values())


class Page(HTMLParser):
    """The elements of the page: tag and attributes; and what scripts and styles hold."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[str] = []
        self.feed((FOLDER / "index.html").read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.elements and self.elements[-1][0] in ("script", "style") and data.strip():
            self.inside.append(data)

    def every(self, attribute: str) -> list[str]:
        """What an attribute says, wherever it stands."""
        return [
            said or "" for _, has in self.elements for at, said in has.items() if at == attribute
        ]


PAGE = Page()


@pytest.mark.parametrize("path", [*EXPLORER])
def test_files_are_served_whole_under_their_type(serve: Serve, path: str) -> None:
    name, media = EXPLORER[path]
    answer = serve(token="correct-horse-battery").client.get(path)
    assert answer.status_code == 200, "the page asks for the token itself"
    assert answer.content == (FOLDER / name).read_bytes()
    assert answer.headers["content-type"] == media
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_every_file_of_the_folder_is_served_and_asked_for() -> None:
    files = {Path(str(file)).name for file in FOLDER.iterdir()}
    assert files == {name for name, _ in EXPLORER.values()}
    asked = {*PAGE.every("src"), *PAGE.every("href"), *re.findall(r'from "\./(.+?)"', SCRIPT)}
    assert {f"/{name}" for name in asked if not name.startswith(("#", "data:"))} == {*EXPLORER} - {
        "/"
    }


def test_the_page_keeps_its_policy() -> None:
    assert not PAGE.inside
    assert not PAGE.every("style")
    assert not [at for _, has in PAGE.elements for at in has if at.startswith("on")]
    assert not re.search(r"https?://|@import|url\(", SCRIPT + (FOLDER / "explorer.css").read_text())


def luminance(colour: str) -> float:
    """How bright a colour is, as WCAG 2 reckons it."""
    digits = colour[1:] if len(colour) == 7 else "".join(2 * digit for digit in colour[1:])
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """How far two colours are apart: 1 … 21."""
    dark, bright = sorted((luminance(one), luminance(other)))
    return (bright + 0.05) / (dark + 0.05)


def test_text_can_be_read_in_light_and_in_dark() -> None:
    style = (FOLDER / "explorer.css").read_text("utf-8")
    light, dark = (
        dict(re.findall(r"--(\w+): (#\w+);", block))
        for block in re.findall(r":root \{(.+?)\n *\}", style, re.S)
    )
    assert light.keys() == dark.keys()
    for colours in (light, dark):
        plain = ("paper", "panel", "near", "no")
        cells = [name for name in colours if re.fullmatch(r"c\d|yes|some", name)]
        assert len(cells) == 12
        pairs = [("ink", ground) for ground in (*plain, *cells)]
        pairs += [("faint", ground) for ground in plain]
        pairs += [(text, ground) for text in ("link", "bad") for ground in ("paper", "panel")]
        pairs += [("link", "near"), ("paper", "link")]
        weak = {pair: contrast(*(colours[name] for name in pair)) for pair in pairs}
        assert {pair: much for pair, much in weak.items() if much < 4.5} == {}


def test_data_becomes_text_and_never_markup() -> None:
    ways = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|\beval\b|Function\("
    assert not re.search(ways, SCRIPT)
    assert not re.search(r'setAttribute\("(style|on)', SCRIPT)


def test_ids_and_names_of_the_script_are_in_the_page() -> None:
    ids = PAGE.every("id")
    assert len(ids) == len({*ids})
    used = {*re.findall(r'(?:element|fill)\("(\w+)"', SCRIPT)}
    assert used >= {"result", "question", "trouble"}
    assert used <= {*ids}
    assert {*PAGE.every("list")} <= {*ids}
    named = {has["name"] for tag, has in PAGE.elements if "name" in has and tag != "meta"}
    assert {*re.findall(r'value\("(\w+)"\)', SCRIPT)} <= named


def test_views_of_the_page_are_those_of_the_script() -> None:
    drawn = re.search(r"const DRAW = \{(.+?)\}", SCRIPT)
    assert drawn is not None
    views = {*re.findall(r"(\w+):", drawn[1])}
    assert {*PAGE.every("data-view")} == views
    assert {view for said in PAGE.every("data-in") for view in said.split()} == views


def test_controls_have_labels() -> None:
    text = re.sub(r"<label.*?</label>", "", (FOLDER / "index.html").read_text("utf-8"), flags=re.S)
    assert not re.search(r"<(input|select|textarea)\b", text)


def test_paths_that_the_script_asks_are_answered() -> None:
    asked = {*re.findall(r'["`](/(?:v1/[\w:]+|readyz))', SCRIPT)}
    assert len(asked) == 8
    assert asked <= {path for _, path, _ in ROUTES}


def test_names_of_presets(served: Served) -> None:
    found: dict[str, Any] = served.client.get("/v1/models").json()
    assert found == {"presets": [*presets()]}
    assert "glm-5.2-fp8" in found["presets"]


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
@pytest.mark.parametrize("name", [*SCRIPTS])
def test_scripts_are_read(tmp_path: Path, name: str) -> None:
    module = (tmp_path / name).with_suffix(".mjs")
    module.write_text(SCRIPTS[name], "utf-8")
    said = subprocess.run(["node", "--check", module], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr

"""How each view looks and is reached: pictures, keys, names, and nothing cut off."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest

from tests.browser.page import NARROW, SMALL, WIDE, Browse, Browsed, expect
from tests.browser.test_questions import LOGS

NEWER = SMALL.read_text("utf-8").replace("[9.x, 10.x, 12.x]", "[9.x, 10.x]")
VIEWS = {
    "matrix": "view=matrix&manifest=vllm-0.33.0",
    "answer": "view=ask&device=RTX+PRO+6000&model=glm-5.2-fp8&fields=tp%3D8&query_len=3300",
    "no-backend": "view=ask&manifest=vllm-0.33.0&device=A100&model=gpt-oss-120b"
    "&fields=kv_cache_dtype%3Dfp8",
    "error": "view=ask&manifest=vllm-0.33.0&device=A100&log="
    + quote((LOGS / "sparse_mla_tp8.log").read_text("utf-8")),
    "map": "view=map&manifest=vllm-0.33.0&device=B200&model=deepseek-v3.2",
    "difference": f"view=diff&old=small&new_document={quote(NEWER)}",
}
SIZES = {"wide": WIDE, "narrow": NARROW}


def everything_has_a_name(browsed: Browsed) -> None:
    """Controls and tables are named, headers have a scope, and a colour is never alone."""
    browsed.page.locator("details").evaluate_all("(all) => all.forEach((one) => one.open = true)")
    tree = browsed.page.locator("body").aria_snapshot()
    controls = r"button|link|textbox|combobox|checkbox|grid|table|navigation|heading"
    nameless = [line for line in tree.splitlines() if re.match(rf" *- ({controls})(:|$)", line)]
    assert not nameless
    assert browsed.page.locator("th:not([scope])").count() == 0
    for cell in (".picture td a", ".outcome", ".swatch:not(.none)"):
        texts = browsed.page.locator(cell).all_text_contents()
        assert all(text.strip() for text in texts)


@pytest.mark.parametrize("size", [*SIZES])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_each_view_is_drawn_and_fits(browse: Browse, scheme: str, size: str) -> None:
    browsed = browse(viewport=SIZES[size], color_scheme=scheme)
    for name, fragment in VIEWS.items():
        browsed.open(fragment).answered()
        browsed.shoot(f"{name}-{scheme}-{size}")
        everything_has_a_name(browsed)
    browsed.open("view=ask").shoot(f"empty-{scheme}-{size}")


def focused(browsed: Browsed) -> dict[str, Any]:
    """What has the focus: what it is called, and how far its outline reaches."""
    found: dict[str, Any] = browsed.page.evaluate(
        """() => { const at = document.activeElement, style = getComputedStyle(at);
            return { tag: at.tagName, text: at.textContent.trim(), name: at.name ?? "",
                label: at.getAttribute("aria-label") ?? "", seen: style.outlineStyle !== "none"
                && parseFloat(style.outlineWidth) >= 2 }; }"""
    )
    return found


def tab_to(browsed: Browsed, **wanted: str) -> None:
    """Presses Tab until something has the focus; each thing on the way shows that it has."""
    for _ in range(60):
        browsed.page.keyboard.press("Tab")
        found = focused(browsed)
        if found["tag"] == "BODY":
            continue
        assert found["seen"], found
        if all(found[name].startswith(text) for name, text in wanted.items()):
            return
    raise AssertionError(f"Tab does not come to {wanted}")


def test_every_view_is_used_with_keys_alone(browse: Browse) -> None:
    browsed = browse().open("view=matrix&manifest=small").answered()
    page, keys = browsed.page, browsed.page.keyboard
    status = page.locator("#message")
    keys.press("Tab")
    assert focused(browsed)["text"] == "Skip to the content"
    keys.press("Enter")
    assert focused(browsed)["tag"] == "MAIN"
    tab_to(browsed, label="math on 7.0")
    readout = page.locator(".readout")
    expect(readout).to_have_text("math on 7.0: prefill yes, decode yes")
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowLeft"):
        keys.press(key)
    expect(readout).to_have_text("mla_fa3 on 7.0: prefill no, decode no")
    keys.press("ArrowLeft")
    assert focused(browsed)["label"].startswith("mla_fa3 on 7.0"), "the edge is the end"
    keys.press("Tab")
    assert focused(browsed)["label"] == "What plain GQA gets (bfloat16, heads of 128)"

    page.reload()
    browsed.answered()
    tab_to(browsed, text="Question")
    keys.press("Enter")
    tab_to(browsed, name="device")
    keys.type("9.0")
    tab_to(browsed, name="fields")
    keys.type("head_size=128")
    tab_to(browsed, text="config.json, what")
    keys.press("Enter")
    tab_to(browsed, name="closed_world")
    tab_to(browsed, text="Answer")
    keys.press("Enter")
    expect(status).to_contain_text("Answered. prefill → fa2 via mha; decode → xqa")
    expect(status).to_have_role("status")
    assert focused(browsed)["text"] == "Answer", "the focus stays where the person is"
    tab_to(browsed, label="Every candidate")

    page.locator("#skip").focus()
    tab_to(browsed, text="Map")
    keys.press("Enter")
    browsed.answered()
    tab_to(browsed, name="most_query")
    keys.press("Control+A")
    keys.type("16")
    keys.press("Enter")
    tab_to(browsed, label="1 new of 1:")
    keys.press("ArrowRight")
    keys.press("ArrowDown")
    expect(readout).to_contain_text("2 new of 2: ")
    keys.press("Enter")
    expect(page.locator("#result h2")).to_have_text(
        "One layer · 9.0 · 2 new tokens, nothing cached"
    )

    tab_to(browsed, text="Difference")
    keys.press("Enter")
    tab_to(browsed, name="old")
    keys.type("small")
    tab_to(browsed, text="Compare")
    keys.press("Enter")
    expect(status).to_have_text("Answered. Both mean the same.")


def test_a_wide_picture_scrolls_in_its_own_box_and_keeps_its_heads(browse: Browse) -> None:
    browsed = browse(viewport=NARROW).open("view=matrix&manifest=vllm-0.33.0").answered()
    page = browsed.page
    page.get_by_role("link", name="TRITON_MLA on 12.1").focus()
    box = page.locator(".high")
    assert box.evaluate("(one) => one.scrollLeft > 0 && one.scrollTop > 0")
    expect(page.get_by_role("columnheader", name="12.1")).to_be_in_viewport()
    expect(page.get_by_role("rowheader", name="TRITON_MLA", exact=True)).to_be_in_viewport()

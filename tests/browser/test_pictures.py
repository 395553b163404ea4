"""Matrix, map and difference: what is drawn is what the API says."""

from __future__ import annotations

import json
import re
import urllib.request
from typing import Any

from tests.browser.page import SMALL, Browse, expect
from tests.browser.test_questions import post


def test_the_matrix_says_what_the_api_says(browse: Browse, service: str) -> None:
    page = browse().open("view=matrix&manifest=small").answered().page
    with urllib.request.urlopen(f"{service}/v1/matrix?manifest=small") as answer:
        (matrix,) = json.loads(answer.read())["matrices"]
    signs = {"yes": "PD", "some": "pd", "no": "··"}
    labels = page.locator(".matrix td a").evaluate_all(
        "(all) => all.map((one) => [one.getAttribute('aria-label'), one.textContent])"
    )
    assert sorted(labels) == sorted(
        [
            f"{row['backend']} on {arch}: prefill {cell['prefill']}, decode {cell['decode']}",
            signs[cell["prefill"]][0] + signs[cell["decode"]][1],
        ]
        for row in matrix["rows"]
        for arch, cell in row["cells"].items()
    )
    kinds = page.locator(".matrix .group").all_inner_texts()
    assert [one.strip() for one in kinds] == ["Plain attention", "MLA", "Sparse MLA"]
    assert page.locator(".matrix thead th[scope=colgroup]").first.inner_text() == "Volta"


def test_a_cell_of_the_matrix_asks_why(browse: Browse) -> None:
    browsed = browse().open("view=matrix&manifest=small").answered()
    page = browsed.page
    page.get_by_role("link", name="sparse_sm100 on 12.0: prefill no, decode no").click()
    expect(page.locator("#result h2")).to_contain_text("One layer · 12.0 · any request")
    expect(page.get_by_label("Forced backend")).to_have_value("sparse_sm100")
    expect(page.get_by_label("Fields of the layer")).to_have_value("mla=true\nsparse=true")
    expect(page.locator(".choice").first).to_contain_text("prefill → no backend")
    expect(page.get_by_text("capability is 12.0; allowed: 10.0, 10.3").first).to_be_visible()


def test_the_map_agrees_with_single_answers(browse: Browse, service: str) -> None:
    browsed = browse().open(
        "view=map&manifest=vllm-0.33.0&device=B200&model=deepseek-v3.2&fields=tp%3D8"
        "&most_query=8192&most_seq=10000"
    )
    page = browsed.answered().page
    legend = page.get_by_role("list", name="Legend").get_by_role("listitem").all_inner_texts()
    meaning = {text.split()[0]: text for text in legend[:-1]}
    assert len(meaning) > 2
    cells = page.locator(".map td a")
    seen = set()
    for query, seq in ((1, 1), (1, 4096), (2048, 2048), (4096, 8192), (4096, 4096), (8192, 10000)):
        said = post(
            service,
            "/v1/resolve",
            {
                "manifest": "vllm-0.33.0",
                "device": "B200",
                "model": "deepseek-v3.2",
                "layer": {"tp": 8},
                "request": {"query_len": query, "seq_len": seq},
            },
        )
        label = re.compile(f"^{query:,} new of {seq:,}: ")
        cell = page.get_by_role("link", name=label)
        letter = cell.inner_text()
        seen.add(letter)
        chosen = said[said["phase"]]
        assert f"{said['phase']} → {chosen['backend']} via {chosen['path']}" in meaning[letter]
        assert cell.evaluate("(one) => one.parentElement.className") == f"c{ord(letter) - 65}"
    assert len(seen) > 2
    assert cells.count() == sum(int(re.findall(r"(\d+) of", text)[0]) for text in meaning.values())
    page.get_by_role("link", name="4,096 new of 8,192").click()
    expect(page.locator("#result h2")).to_contain_text("4,096 new tokens, 4,096 cached")


def test_two_manifests_one_of_them_pasted(browse: Browse) -> None:
    browsed = browse().open("view=diff")
    page = browsed.page
    page.get_by_role("group", name="Old").get_by_label("Manifest").select_option("small")
    text = SMALL.read_text("utf-8")
    changed = text.replace("capability: [9.x, 10.x, 12.x]", "capability: [9.x, 10.x]").replace(
        "seq_len: {max: {field: index_topk}}", "seq_len: {max: 64}", 1
    )
    assert changed.count("max: 64}") == 1
    new = page.get_by_role("group", name="New")
    new.get_by_label("or a document").fill(changed)
    page.get_by_role("button", name="Compare").click()
    browsed.answered()
    expect(page.locator(".choice")).to_contain_text(re.compile(r"Of .+ questions, .+ another"))
    models = page.get_by_role("table", name="Known models")
    same = models.get_by_role("row").filter(has_text="llama-3.1-8b (full)")
    expect(same).to_contain_text("prefill fa2, decode xqa")
    expect(same).to_contain_text("12.0, 12.1")
    change = page.get_by_role("table", name="Backends that change").get_by_role("row").nth(1)
    expect(change).to_contain_text("compute capability 12.0, 12.1")
    change.get_by_text("An example").first.click()
    expect(change.get_by_role("code").first).to_contain_text("attnsel resolve --manifest")
    paths = page.get_by_role("table", name="Prefill paths that change").get_by_role("row")
    expect(paths.nth(1)).to_contain_text("dense_mha")
    expect(paths.nth(1)).to_contain_text("sparse_mqa")
    assert "new_document=" in page.url


def test_counts_beyond_what_javascript_holds_are_rounded_and_say_so(browse: Browse) -> None:
    browsed = browse().open("view=matrix").answered()
    said: list[Any] = browsed.page.evaluate(
        """import("/drawing.js").then(({ count }) =>
            [0, 1204224, 2 ** 53 - 1, 2 ** 53, 1.2e30, 9.999e99].map(count))"""
    )
    assert said == [
        "0",
        "1,204,224",
        "9,007,199,254,740,991",
        "about 9.01 × 10¹⁵",
        "about 1.20 × 10³⁰",
        "about 1.00 × 10¹⁰⁰",
    ]

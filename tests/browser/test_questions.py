"""What people ask by clicking, and the links that say it again."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.browser.page import Browse, Browsed, expect

EXAMPLE = "GLM-5.2, sparse MLA, 3,300 tokens on RTX PRO 6000"
SM120 = "flashinfer_sparse_mla_sm120"
LOGS = Path(__file__).parents[1] / "unit" / "serving" / "logs"


def post(url: str, path: str, body: object) -> Any:
    """What the API itself answers."""
    request = urllib.request.Request(
        url + path, json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request) as answer:
        return json.loads(answer.read())


def row(browsed: Browsed, backend: str) -> Any:
    """The line of a candidate."""
    table = browsed.page.get_by_role("table", name=re.compile("Every candidate|refused"))
    return table.first.get_by_role("row").filter(
        has=browsed.page.get_by_role("rowheader", name=backend, exact=True)
    )


def controls(browsed: Browsed) -> dict[str, str]:
    """What each control says."""
    found: dict[str, str] = browsed.page.evaluate(
        """Object.fromEntries([...document.querySelectorAll("[name]:not(meta)")].map((one) =>
            [one.name, one.type === "checkbox" ? String(one.checked) : one.value]))"""
    )
    return found


def test_the_incident_is_answered_by_clicking(browse: Browse) -> None:
    browsed = browse().open()
    page = browsed.page
    page.get_by_role("button", name="Question").click()
    page.get_by_role("button", name=EXAMPLE).click()
    browsed.answered()
    expect(page.get_by_role("heading", level=2).nth(1)).to_have_text(
        "glm-5.2-fp8 · RTX PRO 6000 Blackwell (12.0) · 3,300 new tokens, nothing cached"
    )
    prefill, decode = page.locator(".choice").all()
    expect(prefill).to_contain_text(f"prefill → {SM120} via sparse_mqa")
    expect(prefill).to_contain_text("this request")
    expect(decode).to_contain_text(f"decode → {SM120} via sparse_mqa")
    off = page.get_by_role("definition").filter(has_text="dense_mha")
    expect(off).to_contain_text(f"dense_mha prefill of {SM120} is pinned: Only the top-k MQA path")
    expect(off).to_contain_text("Revisit when FlashInfer ships a dense MHA prefill for 12.x.")
    link = off.get_by_role("link", name="pull/51395")
    expect(link).to_have_attribute("href", "https://github.com/vllm-project/vllm/pull/51395")
    expect(page.locator(".near")).to_contain_text("flashinfer_mla_fa2 (other kind of layer)")
    expect(row(browsed, SM120)).to_contain_text("● selected")
    expect(row(browsed, "flashinfer_mla_fa2")).to_contain_text("sparse is true; allowed: false")
    refused = row(browsed, "flashinfer_sparse_mla_trtllm_gen")
    expect(refused).to_contain_text("✕ unsupported")
    expect(refused).to_contain_text("never on this device")
    expect(refused).to_contain_text("capability is 12.0; allowed: 10.0, 10.3, 10.7; nearest: 10.7")
    expect(row(browsed, "flashinfer_xqa")).to_contain_text("prefill: PHASE does not serve prefill")


def test_every_candidate_and_reason_of_the_api_is_shown(browse: Browse, service: str) -> None:
    browsed = browse().open("view=ask&device=12.0&model=glm-5.2-fp8&fields=tp%3D8&query_len=3300")
    browsed.answered()
    said = post(
        service,
        "/v1/explain",
        {
            "device": "12.0",
            "model": "glm-5.2-fp8",
            "layer": {"tp": 8},
            "request": {"query_len": 3300},
        },
    )
    for candidate in said["resolution"]["candidates"]:
        shown = row(browsed, candidate["backend"]).inner_text()
        for phase in ("prefill", "decode"):
            assert candidate[phase]["outcome"] in shown
            for reason in candidate[phase]["rejections"]:
                assert reason["code"] in shown
                assert (reason["allowed"] or reason["reason"]) in shown


def test_nothing_fits_and_the_nearest_change_is_said(browse: Browse) -> None:
    browsed = browse().open("view=ask&manifest=vllm-0.33.0")
    page = browsed.page
    page.get_by_role("button", name="gpt-oss-120b with an fp8 cache on A100").click()
    browsed.answered()
    expect(page.get_by_role("combobox", name="Manifest")).to_have_value("vllm-0.33.0")
    expect(page.locator(".choice").first).to_contain_text("prefill → no backend")
    near = page.locator(".near").first
    expect(near).to_contain_text("kv_cache_dtype fp8 → auto")
    expect(near).to_contain_text("makes TRITON_ATTN the choice")
    expect(near).to_contain_text("As it is, it runs on 8.9, 9.0")
    expect(page.locator(".answer")).to_have_count(2)
    page.get_by_text("candidates, and why not the others").first.click()
    expect(row(browsed, "TRITON_ATTN").first).to_contain_text("1 change away")


def test_a_link_asks_the_same_on_another_page(browse: Browse) -> None:
    first = browse().open("view=ask")
    page = first.page
    page.get_by_role("combobox", name="Manifest").select_option("small")
    page.get_by_label("Device").fill("sm90")
    page.get_by_label("New tokens").fill("512")
    page.get_by_label("New and cached").fill("8192")
    page.get_by_label("Fields of the layer").fill("head_size=128\nkv_cache_dtype=auto")
    page.get_by_text("config.json, what is installed").click()
    page.get_by_label("What is installed, one a line").fill("flashinfer-python=0.6.14\njit=none")
    page.get_by_label("what is unknown is not installed").check()
    page.get_by_role("button", name="Answer", exact=True).click()
    first.answered()
    fragment = page.url.partition("#")[2]
    second = browse().open(fragment).answered()
    assert controls(second) == controls(first)
    assert second.page.locator("#result").inner_html() == page.locator("#result").inner_html()
    assert second.page.url == page.url
    expect(second.page.get_by_label("What is installed, one a line")).to_be_visible()


def test_back_and_forward_restore_question_and_answer(browse: Browse) -> None:
    browsed = browse().open("view=ask&manifest=small&device=12.0&fields=head_size%3D128")
    page = browsed.answered().page
    heading = page.locator("#result h2")
    page.get_by_label("Device").fill("9.0")
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(heading).to_contain_text("· 9.0 ·")
    page.get_by_role("button", name="Matrix").click()
    expect(heading).to_contain_text("Which backend runs where: small 1")
    page.go_back()
    expect(heading).to_contain_text("· 9.0 ·")
    expect(page.get_by_label("Device")).to_have_value("9.0")
    page.go_back()
    expect(heading).to_contain_text("· 12.0 ·")
    expect(page.get_by_label("Device")).to_have_value("12.0")
    page.go_forward()
    expect(heading).to_contain_text("· 9.0 ·")


def test_a_pasted_config_json(browse: Browse) -> None:
    browsed = browse().open("view=ask&device=H200&query_len=100")
    page = browsed.page
    page.get_by_text("config.json, what is installed").click()
    box = page.get_by_label("A model's config.json")
    box.fill('{"model_type": "llama", ')
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator("#message")).to_contain_text("the config.json is no JSON")
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "num_hidden_layers": 7,
        "torch_dtype": "bfloat16",
    }
    box.fill(json.dumps(config))
    page.get_by_role("button", name="Answer", exact=True).click()
    browsed.answered()
    expect(page.get_by_role("heading", name="7 full layers")).to_be_visible()
    page.get_by_text("The layer as it was read").click()
    expect(page.get_by_text("head_size=128")).to_be_visible()


def test_a_pasted_error_is_explained_and_silences_what_it_says_itself(browse: Browse) -> None:
    browsed = browse().open("view=ask&manifest=vllm-0.33.0&model=llama-3.1-8b&query_len=7")
    page = browsed.page
    page.get_by_text("An engine's error text").click()
    page.get_by_label("Error text, or the whole log").fill(
        (LOGS / "sparse_mla_tp8.log").read_text("utf-8")
    )
    model = page.get_by_role("combobox", name="Model")
    for silenced in (model, page.get_by_label("New tokens"), page.get_by_label("New and cached")):
        expect(silenced).to_be_disabled()
    expect(page.get_by_text("The error says model, lengths and backend itself")).to_be_visible()
    page.get_by_role("button", name="Answer", exact=True).click()
    browsed.answered()
    assert "model=" not in page.url
    assert "query_len=" not in page.url
    heading = page.get_by_role("heading", name="The error in line 8: no backend was valid")
    expect(heading).to_be_visible()
    expect(page.get_by_role("definition").first).to_have_text("not said by the log: say it above")
    expect(page.locator(".near")).to_contain_text("it runs on 9.0, 10.0, 10.3, 10.7, 12.0, 12.1")
    expect(row(browsed, "FLASHMLA").first).to_contain_text("FLASHMLA_SPARSE_DEVICE")
    page.get_by_label("Device").fill("A100")
    page.get_by_role("button", name="Answer", exact=True).click()
    expect(page.locator(".choice").first).to_have_text(
        "The manifest has no backend for this layer."
    )
    refused = row(browsed, "FLASHMLA").first
    expect(refused).to_contain_text("capability is 8.0; allowed: 9.x, 10.x; nearest: 9.0")
    page.get_by_label("Error text, or the whole log").fill("")
    expect(model).to_be_enabled()
    expect(page.get_by_label("New tokens")).to_have_value("7")


def test_each_known_error_text_is_drawn(browse: Browse, service: str) -> None:
    browsed = browse().open("view=ask&manifest=vllm-0.33.0&device=A100")
    page = browsed.page
    page.get_by_text("An engine's error text").click()
    texts = [file.read_text("utf-8") for file in sorted(LOGS.glob("*.log"))]
    for text in (*texts, "\n".join(texts)):
        question = {"manifest": "vllm-0.33.0", "device": "A100", "log": text}
        said = post(service, "/v1/explain", question)
        page.get_by_label("Error text, or the whole log").fill(text)
        page.get_by_role("button", name="Answer", exact=True).click()
        browsed.answered()
        errors = said.get("diagnoses", [said])
        headings = page.get_by_role("heading", name="The error in line")
        expect(headings).to_contain_text([f"line {one['error']['line']}:" for one in errors])
        refused = {one["backend"] for error in errors for one in error["candidates"]}
        shown = page.get_by_role("table", name="Who was refused").get_by_role("rowheader")
        assert {*shown.all_inner_texts()} == refused


@pytest.mark.parametrize(
    ("fragment", "words"),
    [
        ("view=ask&device=B2000&fields=head_size%3D128", "did you mean B200"),
        ("view=ask&device=H200&fields=head_size", "write field=value"),
        ("view=ask&device=H200&query_len=9&seq_len=3", "seq_len"),
        ("view=map&device=H200&manifest=none", 'no manifest "none" is served'),
        ("view=ask&device=H200&log=nothing", "error"),
    ],
)
def test_what_is_refused_is_one_line(browse: Browse, fragment: str, words: str) -> None:
    browsed = browse(fails="422|404").open(fragment)
    message = browsed.page.locator("#message.bad")
    expect(message).to_contain_text(words)
    assert "\n" not in message.inner_text()
    assert not browsed.page.locator("#result").inner_text()

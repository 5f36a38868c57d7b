"""The page at `/` in headless Chromium, used like a person: by keyboard, on a phone, light and dark."""

import asyncio
import base64
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import time

import aiohttp
import pytest
import tensorflow as tf

from export.serve import page
from tests.export.serving.models import Reviews, write_model
from tests.export.serving.running import running
from tests.waiting import PATIENCE, wait_until


def test_names_cannot_leave_their_script(tmp_path):
    assert page.read_labels(str(tmp_path)) == []
    html = page.render({"</script><b>": ["<i>", "ü"]}).decode()
    inside = re.search(r'id="models">(.*?)</script>', html)[1]
    assert json.loads(inside) == [{"name": "</script><b>", "labels": ["<i>", "ü"]}]


def text(name: str, rank: int = 1) -> tf.TensorSpec:
    return tf.TensorSpec([None] * rank, tf.string, name=name)


class Kinds(tf.Module):
    """A model with fixed answers, and the inputs and outputs of exports that the page shows in special forms."""

    @tf.function(input_signature=[text("question"), text("context")])
    def span(self, question, context):
        found = tf.strings.length(question) > 0
        place = [tf.where(found, at, -1) for at in (3, 7)]
        answer = tf.where(found, tf.strings.substr(context, 3, 4, unit="UTF8_CHAR"), "")
        return {"answer": answer, "start": place[0], "end": place[1], "probability": tf.fill(tf.shape(found), 0.75)}

    @tf.function(input_signature=[text("text")])
    def tags(self, text):
        tags = [b"B-PER", b"I-PER", b"O", b"B-LOC", b""]
        found = {"tags": [tags], "start": [[2, 6, 9, 15, -1]], "end": [[5, 8, 11, 18, -1]], "num_words": [4]}
        return {name: tf.constant(value) for name, value in found.items()} | {"words": tf.fill([1, 5], text[0])}

    @tf.function(input_signature=[text("text")])
    def masks(self, text):
        tokens, scores = [[[b"cat", b"dog"], [b"##s", b"!"]]], [[[0.7, 0.2], [0.6, 0.1]]]
        return {"tokens": tf.constant(tokens), "scores": tf.constant(scores), "num_masks": tf.constant([2]),
                "filled": tf.fill([1, 2, 2], text[0])}  # fmt: skip

    @tf.function(input_signature=[text("context"), text("start"), text("choices", 2)])
    def choices(self, context, start, choices):
        chances = tf.one_hot(tf.zeros_like(context, tf.int32) + 1, tf.shape(choices)[1])
        return {"probabilities": chances, "choice": tf.cast(tf.argmax(chances, 1), tf.int32)}

    @tf.function(input_signature=[text("text_a")])
    def sets(self, text_a):
        found = tf.cast(tf.strings.length(text_a) > 0, tf.int32)[0]
        answer = {"probabilities": [[0.9, 0.2, 0.6]], "predicted": [[True, False, True]], "labels": [["kind", "old"]]}
        return {
            name: tf.constant(value)[:, : found * len(value[0])] if name == "labels" else tf.constant(value)
            for name, value in answer.items()
        }


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    base = tmp_path_factory.mktemp("models")
    (base / "half").mkdir()
    write_model(base / "half", 1)
    labels = base / "labels.txt"
    labels.write_text("bad\ngood\n")
    model = Reviews()
    model.asset = tf.saved_model.Asset(str(labels))
    tf.saved_model.save(model, str(base / "reviews/1"), signatures={"serving_default": model.answer})
    kinds = Kinds()
    signatures = {name: getattr(kinds, name) for name in ("span", "tags", "masks", "choices", "sets")}
    tf.saved_model.save(kinds, str(base / "kinds/1"), signatures=signatures)
    with running(*(f"--model={name}={base}/{name}" for name in ("reviews", "half", "kinds"))) as started:
        yield started


def test_page_is_served_and_loads_nothing_external(server):
    status, headers, body = server.http("GET", "/")
    assert status == 200 and headers["Content-Type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert json.loads(re.search(rb'id="models">(.*?)</script>', body)[1]) == [
        {"name": "half", "labels": []}, {"name": "kinds", "labels": []}, {"name": "reviews", "labels": ["bad", "good"]},
    ]  # fmt: skip
    assert not re.search(rb"(src|href)=\"(?!data:)", body) and b"@import" not in body


def test_the_page_answers_only_to_its_own_names(server):
    for host in ("localhost:1", "127.0.0.1", "[::1]:8501", "10.0.0.7"):
        assert server.http("GET", "/", headers={"Host": host})[0] == 200, host
    for host in ("attacker.example", "localhost.attacker.example:80", "127.0.0.1.nip.io", "]"):
        assert server.http("GET", "/", headers={"Host": host})[0] in (400, 403), host


class Browser:
    """A page in headless Chromium, controlled over the debugging protocol."""

    def __init__(self, socket):
        self._socket = socket
        self._number = 0

    async def call(self, method: str, **parameters) -> dict:
        self._number += 1
        await self._socket.send_json({"id": self._number, "method": method, "params": parameters})
        while True:
            message = await self._socket.receive_json(timeout=PATIENCE)
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    async def run(self, script: str):
        done = await self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    async def until(self, script: str) -> None:
        end = time.monotonic() + PATIENCE
        while not await self.run(script):
            assert time.monotonic() < end, f"{script}: {await self.run('document.body.innerText')}"
            await asyncio.sleep(0.05)

    async def key(self, key: str, modifiers: int = 0, text: str = "") -> None:
        codes = {"windowsVirtualKeyCode": {"Enter": 13, "Tab": 9}.get(key, 0)}
        for kind in ("keyDown", "keyUp"):
            await self.call("Input.dispatchKeyEvent", type=kind, key=key, modifiers=modifiers, text=text, **codes)

    async def screenshot(self, name: str) -> None:
        if folder := os.environ.get("BERT_TF_SCREENSHOTS"):
            image = await self.call("Page.captureScreenshot", format="png")
            (pathlib.Path(folder) / name).write_bytes(base64.b64decode(image["data"]))


@contextlib.asynccontextmanager
async def browser(url: str, profile: pathlib.Path):
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    assert program, "make test-browser needs Chromium"
    flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
    process = subprocess.Popen(
        [program, *flags, f"--user-data-dir={profile}", "about:blank"], stderr=subprocess.DEVNULL
    )
    try:
        port_file = profile / "DevToolsActivePort"
        wait_until(lambda: port_file.exists() and port_file.read_text().strip())
        port = port_file.read_text().split()[0]
        async with aiohttp.ClientSession() as session:
            async with session.put(f"http://127.0.0.1:{port}/json/new?{url}") as answer:
                target = (await answer.json())["webSocketDebuggerUrl"]
            async with session.ws_connect(target, max_msg_size=0) as socket:
                yield Browser(socket)
    finally:
        process.kill()
        process.wait()


WIDE = "document.documentElement.scrollWidth <= innerWidth"


@pytest.mark.browser
def test_a_person_tries_models(server, tmp_path):
    async def main():
        async with browser(f"http://127.0.0.1:{server.rest_port}/", tmp_path) as tab:
            await tab.call("Page.enable")
            await tab.until("document.querySelector('textarea') !== null")
            # only by keyboard: to the model, to reviews, to the text, and send
            await tab.run("find('model').focus()")
            await tab.run("find('model').value = 'reviews'; find('model').dispatchEvent(new Event('change'))")
            await tab.until("document.querySelector('textarea')?.name === 'text_a'")
            await tab.run("document.activeElement.blur(); find('signature').focus()")
            await tab.key("Tab")
            assert await tab.run("document.activeElement.name") == "text_a"
            await tab.call("Input.insertText", text="What a 'film'!")
            await tab.key("Enter", modifiers=2)
            await tab.until("document.querySelectorAll('.bar').length === 2")
            assert await tab.run("document.querySelector('.best').innerText.replace(/\\s+/g, ' ')") == "good 1.000"
            assert "\\u0027film\\u0027" in await tab.run("find('command').textContent")
            await tab.screenshot("light.png")
            assert await tab.run(WIDE)
            await tab.call(
                "Emulation.setDeviceMetricsOverride", width=360, height=740, deviceScaleFactor=2, mobile=True
            )
            light = await tab.run("getComputedStyle(document.body).backgroundColor")
            dark = [{"name": "prefers-color-scheme", "value": "dark"}]
            await tab.call("Emulation.setEmulatedMedia", features=dark)
            assert await tab.run("getComputedStyle(document.body).backgroundColor") != light
            assert await tab.run(WIDE)
            await tab.screenshot("phone-dark.png")
            # a signature of numbers, and the server's message for an error
            await tab.run("find('model').value = 'half'; find('model').dispatchEvent(new Event('change'))")
            await tab.until("document.querySelector('textarea')?.name === 'x'")
            for text, expected in [("4", "3"), ('"a"', "is not a value of the type float32"), ("{", "JSON")]:
                await tab.run(f"document.querySelector('textarea').value = {json.dumps(text)}; find('send').click()")
                await tab.until(f"find('answer').innerText.includes({json.dumps(expected)})")

    asyncio.run(main())


ASKED = {
    "span": ({"question": "who?", "context": "😀 \u00e9café is <b>here</b>"}, "mark => [mark.innerText]", [["café"]]),
    "tags": ({"text": "😀 Zoë Xu is in Rio."}, "mark => [mark.firstChild.data, mark.lastChild.innerText]",
             [["Zoë Xu", "PER"], ["Rio", "LOC"]]),
    "masks": ({"text": "a [MASK] play [MASK]."}, "mark => [mark.innerText]", [["cat"], ["s"]]),
    "choices": ({"context": "c", "start": "", "choices": "one\n\ntwo\nthree"}, "", []),
}  # fmt: skip


async def fill(tab, texts):
    for name, value in texts.items():
        await tab.run(f"document.querySelector('textarea[name={name}]').value = {json.dumps(value)}")
    await tab.run("find('send').click()")
    await tab.until("!find('send').disabled && find('answer').innerText !== ''")


@pytest.mark.browser
def test_answers_are_shown_as_people_want_to_see_them(server, tmp_path):
    async def main():
        async with browser(f"http://127.0.0.1:{server.rest_port}/", tmp_path) as tab:
            await tab.until("document.querySelector('textarea') !== null")
            await tab.run("find('model').value = 'kinds'; find('model').dispatchEvent(new Event('change'))")
            await tab.until("find('signature').options.length === 5")
            for name, (texts, script, expected) in ASKED.items():
                await tab.run(f"find('signature').value = '{name}'; chooseSignature()")
                await fill(tab, texts)
                if script:
                    found = await tab.run(f"[...find('answer').querySelectorAll('mark')].map({script})")
                    assert found == expected
                assert await tab.run(WIDE) and not await tab.run("find('answer').querySelector('b') !== null")
                await tab.screenshot(f"{name}.png")
            names = await tab.run("[...document.querySelectorAll('textarea')].map(area => area.name)")
            assert names == ["context", "start", "choices"]
            shown = "[...find('answer').querySelectorAll('.bar')].map(bar => bar.innerText.replace(/\\s+/g, ' '))"
            assert await tab.run(shown) == ["one 0.000", "two 1.000", "three 0.000"]
            assert json.loads(await tab.run("find('answer').querySelector('pre').textContent"))["choice"] == 1
            for texts, heading, best in [("good", "kind, old", 2), ("", "no label", 2)]:
                await tab.run("find('signature').value = 'sets'; chooseSignature()")
                await fill(tab, {"text_a": texts})
                assert await tab.run("find('answer').querySelector('h2').innerText") == heading
                assert await tab.run("find('answer').querySelectorAll('.best').length") == best
            await tab.run("find('signature').value = 'span'; chooseSignature()")
            await fill(tab, {"context": "nothing"})
            assert await tab.run("find('answer').querySelector('h2').innerText") == "no answer (probability 0.750)"
            assert await tab.run("find('answer').querySelector('mark')") is None

    asyncio.run(main())

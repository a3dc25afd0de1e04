// The page of `millrace watch` in Chromium: no violations by axe, no scrolling sideways, zoom by mouse, finger and keys, values.
//
//     node watch_page.js MILLRACE CHROMIUM
//
// Needs puppeteer-core 24, axe-core 4 (npm), Node 20. Exits with 1 at the first check that fails.
"use strict";
const assert = require("node:assert");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const {spawn} = require("node:child_process");
const puppeteer = require("puppeteer-core");

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [millrace, chromium] = process.argv.slice(2);
const pause = ms => new Promise(done => setTimeout(done, ms));

function line(step, loss) {
  return JSON.stringify({
    step, loss, grad_norm: 1, lr: 1e-3, tokens: 8 * step, consumed_samples: step, tokens_per_s: 9, tflops: 1, mfu: 0.5, step_s: 2, memory_bytes: 1e6,
  }) + "\n";
}

async function until(wanted, ask) {
  for (const end = Date.now() + 20000; Date.now() < end; await pause(50)) {
    const found = await ask();
    if (found) return found;
  }
  assert.fail("no " + wanted);
}

async function check(browser, address, {width, theme, hasTouch}) {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", error => errors.push(String(error)));
  page.on("console", message => message.type() === "error" && errors.push(message.text()));
  page.on("request", request => request.url().startsWith("data:") || assert(request.url().startsWith(address), request.url()));
  await page.setViewport({width, height: 844, isMobile: hasTouch, hasTouch});
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: theme}]);
  await page.goto(address);
  await until("curves", () => page.evaluate(() => document.querySelectorAll(".curve").length > 10));
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width);
  // names are text
  assert.equal(await page.evaluate(() => document.querySelectorAll("b b, #runs b, img").length), 0);
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => (await axe.run()).violations.map(v => v.id + " " + v.nodes.map(n => n.target)));
  assert.deepEqual(violations, []);
  const zoom = () => page.evaluate(() => zoom);
  const box = await (await page.$(".plot")).boundingBox();
  const [y, from, to] = [box.y + 80, box.x + 120, box.x + 240];
  if (hasTouch) {
    await page.touchscreen.touchStart(from, y);
    for (let x = from; x <= to; x += 10) await page.touchscreen.touchMove(x, y);
    await page.touchscreen.touchEnd();
  } else {
    await page.mouse.move(from, y);
    await page.mouse.down();
    await page.mouse.move(to, y, {steps: 5});
    await page.mouse.up();
  }
  const [left, right] = await until("window", zoom);
  assert(0 < left && left < right && right < 300, left + " " + right);
  // the chart spans from the origin to step 300 between its margins
  const plain = box.width - 58 - 12;
  assert(Math.abs(right - left - 120 / plain * 300) < 10, left + " " + right);
  if (hasTouch) {
    await page.evaluate(() => document.getElementById("reset").click());
  } else {
    await page.mouse.click(from, y, {count: 2});
  }
  await until("whole curve", async () => await zoom() === null);
  await page.focus(".plot");
  await page.keyboard.press("End");
  const said = await page.evaluate(() => document.getElementById("said").textContent);
  assert.equal(said, "step 300: a <b>name 2, other 3");
  await page.keyboard.press("+");
  assert.deepEqual(await zoom(), [150, 300]);
  await page.keyboard.press("0");
  await page.click("#log");
  // hiding a run leaves one curve in the first chart; the list may be drawn again between finding a box and a click on its place
  await page.evaluate(() => document.querySelector("#runs input").click());
  await until("one curve", () => page.evaluate(() => document.querySelector(".plot").querySelectorAll(".curve").length === 1));
  assert.deepEqual(errors, []);
  await page.close();
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "watch-"));
  for (const [name, loss] of [["a <b>name", 2], ["other", 3]]) {
    fs.mkdirSync(path.join(folder, name));
    const lines = Array.from({length: 300}, (_, at) => line(at + 1, loss + (299 - at) / 100));
    fs.writeFileSync(path.join(folder, name, "metrics.jsonl"), lines.join(""));
  }
  const port = path.join(folder, "port");
  const server = spawn(millrace, ["watch", folder, "--port", "0", "--port-file", port], {stdio: "inherit"});
  const browser = await puppeteer.launch({executablePath: chromium, args: ["--no-sandbox"]});
  try {
    const number = await until("port", () => fs.existsSync(port) && fs.readFileSync(port, "utf8").trim());
    const address = "http://127.0.0.1:" + number + "/";
    for (const theme of ["light", "dark"]) {
      await check(browser, address, {width: 1400, theme, hasTouch: false});
      await check(browser, address, {width: 390, theme, hasTouch: true});
    }
    console.log("4 views checked");
  } finally {
    await browser.close();
    server.kill();
    fs.rmSync(folder, {recursive: true});
  }
}

main().catch(error => {
  console.error(error);
  process.exitCode = 1;
});

// The pages of `millrace plan --html` in Chromium: no violations by axe, no scrolling sideways, no request, no error.
//
//     node plan_page.js MILLRACE CHROMIUM
//
// Needs puppeteer-core 24, axe-core 4 (npm), Node 20. Exits with 1 at the first check that fails.
"use strict";
const assert = require("node:assert");
const {execFileSync} = require("node:child_process");
const fs = require("node:fs");
const os = require("node:os");
const path = require("node:path");
const puppeteer = require("puppeteer-core");

const AXE = fs.readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const [millrace, chromium] = process.argv.slice(2);
const recipes = path.join(__dirname, "../../pipelines/jobs/recipes");
const plans = [
  ["gpt2_1558m", "--cluster", "dgx-h100", "--devices", "16"],
  ["llama3_405b", "--cluster", "dgx-h100", "--devices", "1024", "--vocab", "128256"],
  ["gpt_1t", "--cluster", "dgx-a100", "--devices", "16"], // nothing fits
  ["llama3_70b", "--cluster", "dgx-h100", "--vocab", "128256", "--serve"],
];

async function check(browser, file, {width, theme}) {
  const page = await browser.newPage();
  const errors = [];
  page.on("pageerror", error => errors.push(String(error)));
  page.on("console", message => errors.push(message.text()));
  page.on("request", request => request.url().startsWith("file:") || errors.push(request.url()));
  await page.setViewport({width, height: 844, isMobile: width < 500, hasTouch: width < 500});
  await page.emulateMediaFeatures([{name: "prefers-color-scheme", value: theme}]);
  await page.goto("file://" + file);
  await page.evaluate(() => document.querySelectorAll("details").forEach(details => details.open = true));
  assert.equal(await page.evaluate(() => document.documentElement.scrollWidth), width, file);
  await page.evaluate(AXE);
  const violations = await page.evaluate(async () => (await axe.run()).violations.map(v => v.id + " " + v.nodes.map(n => n.target)));
  assert.deepEqual(violations, [], file);
  assert.deepEqual(errors, [], file);
  await page.close();
}

async function main() {
  const folder = fs.mkdtempSync(path.join(os.tmpdir(), "plan-"));
  const browser = await puppeteer.launch({executablePath: chromium, args: ["--no-sandbox"]});
  let views = 0;
  try {
    for (const [number, [recipe, ...flags]] of plans.entries()) {
      const file = path.join(folder, number + ".html");
      const args = ["plan", path.join(recipes, recipe + ".toml"), ...flags, "--html", file];
      try {
        execFileSync(millrace, args, {stdio: "ignore"});
      } catch (error) {
        assert.equal(error.status, 1, recipe); // the page is written all the same
      }
      for (const theme of ["light", "dark"]) {
        for (const width of [1400, 390]) {
          await check(browser, file, {width, theme});
          views += 1;
        }
      }
    }
    console.log(views + " views checked");
  } finally {
    await browser.close();
    fs.rmSync(folder, {recursive: true});
  }
}

main().catch(error => {
  console.error(error);
  process.exitCode = 1;
});

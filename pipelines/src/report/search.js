(() => {
  const box = document.getElementById("search");
  const field = document.getElementById("find");
  const told = document.getElementById("found");
  const main = document.querySelector("main");
  const all = (what, of = main) => [...of.querySelectorAll(what)];
  const items = all("tbody tr, .bar, figure");
  const folds = all("details");
  let texts = null;
  let were_open = null;
  const show = (element, is_shown) => element.classList.toggle("out", !is_shown);
  const reset = () => {
    all(".out").forEach((element) => show(element, true));
    if (were_open) folds.forEach((fold, i) => (fold.open = were_open[i]));
    were_open = null;
    told.textContent = "";
  };
  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (!words.length) return reset();
    were_open ??= folds.map((fold) => fold.open);
    texts ??= items.map((item) => item.textContent.toLowerCase());
    let count = 0;
    const found = new Set();
    items.forEach((item, i) => {
      const is_found = words.every((word) => texts[i].includes(word));
      show(item, is_found);
      if (!is_found) return;
      count += 1;
      for (let at = item.parentElement; at && at !== main; at = at.parentElement) found.add(at);
    });
    // the whole text of a sample stays folded
    folds.filter((fold) => !fold.closest("figure")).forEach((fold) => {
      const has_items = fold.querySelector("tbody tr, .bar, figure");
      if (has_items) show(fold, found.has(fold));
      fold.open = found.has(fold) || (!has_items && fold.open);
    });
    all(".tiles").forEach((tiles) => show(tiles, false));
    all("section, .scroll, .bars").forEach((part) => show(part, found.has(part)));
    all("h3").forEach((title) => {
      const next = title.nextElementSibling;
      show(title, !(next && next.classList.contains("out")));
    });
    told.textContent = count === 1 ? "1 row or sample" : `${count} rows and samples`;
  };
  const unfold = () => {
    const part = location.hash && document.getElementById(location.hash.slice(1));
    const fold = part && part.querySelector(":scope > details");
    if (!fold) return;
    fold.open = true;
    part.scrollIntoView();
  };
  field.addEventListener("input", search);
  field.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    field.value = "";
    reset();
  });
  addEventListener("hashchange", unfold);
  // a link to the part that is shown already changes nothing that is heard of otherwise
  document.querySelector("nav").addEventListener("click", () => setTimeout(unfold));
  box.hidden = false;
  unfold();
  if (field.value) search();
})();

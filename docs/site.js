// The search takes "-" before a word as "without it", so the dashes of a flag that is typed or pasted are removed.
document.addEventListener(
  "input",
  ({ target }) => {
    if (target.matches(".md-search__input") && /(^|\s)-+\w/.test(target.value)) {
      target.value = target.value.replace(/(^|\s)-+(?=\w)/g, "$1");
    }
  },
  true,
);

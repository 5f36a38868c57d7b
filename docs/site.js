// The search excludes a word after "-". So the dashes of a typed or pasted flag are removed.
document.addEventListener(
  "input",
  ({ target }) => {
    if (target.matches(".md-search__input") && /(^|\s)-+\w/.test(target.value)) {
      target.value = target.value.replace(/(^|\s)-+(?=\w)/g, "$1");
    }
  },
  true,
);

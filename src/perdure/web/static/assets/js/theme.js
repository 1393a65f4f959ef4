// Light, dark or system theme; the colours are in tokens.css.

const KEY = "perdure-theme";
const NEXT = { system: "light", light: "dark", dark: "system" };

export function startTheme(button) {
  show(button);
  button.addEventListener("click", () => {
    localStorage.setItem(KEY, NEXT[chosen()]);
    show(button);
  });
}

function chosen() {
  const stored = localStorage.getItem(KEY);
  return stored in NEXT ? stored : "system";
}

function show(button) {
  const theme = chosen();
  if (theme === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  button.textContent = theme;
  button.setAttribute("aria-label", `Theme: ${theme}`);
}

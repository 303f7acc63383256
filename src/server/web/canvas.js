// A canvas that is as sharp as the screen and follows the size of its box.
import { onThemeChange } from "./theme_colors.js";

// draw(): called when the size or the theme changed. Returns {ctx, size(): {width, height}} in CSS pixels.
export function fitCanvas(canvas, draw) {
  const ctx = canvas.getContext("2d");
  const size = { width: 0, height: 0 };
  const fit = () => {
    const ratio = window.devicePixelRatio || 1;
    size.width = canvas.clientWidth;
    size.height = canvas.clientHeight;
    canvas.width = Math.round(size.width * ratio);
    canvas.height = Math.round(size.height * ratio);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (size.width > 0) draw();
  };
  new ResizeObserver(fit).observe(canvas);
  onThemeChange(draw);
  return { ctx, size };
}

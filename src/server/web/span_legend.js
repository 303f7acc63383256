// What the colours of lanes stand for.
import { el } from './dom.js';

const SHOWN = [
  ['decode', 'step: answers'], ['extend', 'step: prompts'], ['mixed', 'step: both'], ['compose', 'compose'], ['launch', 'launch'],
  ['process', 'process'], ['send', 'send'], ['wake', 'wake'], ['plan', 'plan'], ['deliver', 'deliver'], ['burst', 'network'], ['wait', 'waiting'],
];

export function spanLegend() {
  const items = SHOWN.map(([kind, text]) => el('li', {}, el('span', { class: `swatch span-${kind}`, 'aria-hidden': 'true' }), text));
  const gap = el('li', {}, el('span', { class: 'swatch span-gap', 'aria-hidden': 'true' }), 'gap: the device stands still');
  const launch = el('li', {}, el('span', { class: 'swatch launch-line', 'aria-hidden': 'true' }), 'from launch to its step');
  return el('ul', { class: 'span-legend', 'aria-label': 'Colours' }, gap, launch, ...items);
}

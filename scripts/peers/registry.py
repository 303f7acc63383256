"""Which peers there are."""
from environments import MistralRs, OpenVino, Vllm
from llama import LlamaServer
from peer import Gapless

MAKERS = {
    "llama": lambda: LlamaServer(),
    "llama-q4_0": lambda: LlamaServer("Q4_0"),
    "llama-q8_0": lambda: LlamaServer("Q8_0"),
    "openvino": lambda: OpenVino(),
    "openvino-q4_0": lambda: OpenVino("Q4_0"),
    "vllm": lambda: Vllm(),
    "mistralrs": lambda: MistralRs("bf16"),
    "mistralrs-q4_0": lambda: MistralRs("Q4_0"),
}
NAMES = tuple(MAKERS)


def make_peers(names, gapless_flags):
    """Gapless first: the others are compared with it."""
    return [Gapless(gapless_flags), *(MAKERS[name]() for name in names)]

"""Runs in the environment of the `llama-cpp-python` package, whose tokenizer is the oracle: texts as a JSON list on standard input, for each
one its ids as a JSON list, control tokens recognised and then not. Usage: llama_tokenize.py MODEL.gguf"""
import json
import sys

import llama_cpp

model = llama_cpp.Llama(model_path=sys.argv[1], vocab_only=True, verbose=False)
texts = [text.encode() for text in json.load(sys.stdin)]
ids = [[model.tokenize(text, add_bos=False, special=special) for special in (True, False)] for text in texts]
json.dump(ids, sys.stdout)

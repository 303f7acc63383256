"""Runs inside the environment of OpenVINO GenAI: one cell in process, by continuous batching. Prints one JSON line with the keys of
`gapless bench serve`. There is no server and no network in the figures, which favours this peer."""
import time

import in_process
import openvino_genai


def make_pipeline(job):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.max_num_seqs = job["streams"]
    scheduler.max_num_batched_tokens = 512
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    scheduler.num_kv_blocks = job["kv_blocks"]
    properties = {"INFERENCE_NUM_THREADS": job["threads"], "KV_CACHE_PRECISION": "u8", "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32}
    return openvino_genai.ContinuousBatchingPipeline(job["model"], scheduler, "CPU", properties)


class Request:
    def __init__(self, pipeline, number, prompt, output):
        settings = openvino_genai.GenerationConfig(max_new_tokens=output, ignore_eos=True, do_sample=False)
        ids = pipeline.get_tokenizer().encode(prompt, add_special_tokens=False).input_ids
        self.start, self.stamps, self.prompt_tokens = time.perf_counter(), [], ids.shape[1]
        self.handle = pipeline.add_request(number, ids, settings)

    def look(self):
        """Notes the tokens that a step brought; is it done?"""
        if self.handle.can_read():
            now = time.perf_counter()
            for output in self.handle.read().values():
                self.stamps += [now] * len(output.generated_ids)
        return self.handle.get_status() != openvino_genai.GenerationStatus.RUNNING and not self.handle.can_read()


def run(pipeline, prompts, streams, output):
    """`streams` requests at a time, the next one as one ends."""
    waiting, open_requests, ended = list(enumerate(prompts)), [], []
    while waiting or open_requests:
        while waiting and len(open_requests) < streams:
            open_requests.append(Request(pipeline, *waiting.pop(0), output))
        pipeline.step()
        done = [request for request in open_requests if request.look()]
        ended += done
        open_requests = [request for request in open_requests if request not in done]
    return [in_process.Answer(request.start, request.stamps, request.prompt_tokens, len(request.stamps)) for request in ended]


if __name__ == "__main__":
    in_process.main(make_pipeline, run)

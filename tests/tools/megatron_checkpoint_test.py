#!/usr/bin/env python3
"""Tests of tools/megatron_checkpoint.py: there and back the same bits, under any layout, moments too. Exit status 77
where PyTorch or NumPy is missing."""
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest

try:
    import numpy  # noqa: F401
    import torch
except ImportError as missing:
    print(f"skipped: {missing.name} is missing")
    sys.exit(77)

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import megatron_checkpoint  # noqa: E402
import safetensors_file  # noqa: E402

C, HEADS, LAYERS, ROWS, POSITIONS = 16, 4, 4, 20, 8


def model(seed, bias=True, head=False):
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape):
        return torch.randn(*shape, generator=generator)

    shapes = {"wte.weight": (ROWS, C), "wpe.weight": (POSITIONS, C)}
    for layer in range(LAYERS):
        block = f"blocks.{layer}."
        for name, shape in {"norm1": (C,), "attn.q": (C, C), "attn.k": (C, C), "attn.v": (C, C), "attn.proj": (C, C),
                            "norm2": (C,), "mlp.fc1": (4 * C, C), "mlp.fc2": (C, 4 * C)}.items():
            shapes[f"{block}{name}.weight"] = shape
            if bias:
                shapes[f"{block}{name}.bias"] = shape[:1]
    shapes["norm.weight"] = (C,)
    if bias:
        shapes["norm.bias"] = (C,)
    if head:
        shapes["head.weight"] = (ROWS, C)
    return {name: draw(*shape) for name, shape in shapes.items()}


class Checkpoint(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.begin()

    def tearDown(self):
        self.folder.cleanup()

    def begin(self):
        """An empty folder."""
        self.path = pathlib.Path(tempfile.mkdtemp(dir=self.folder.name))

    def run_folder(self, **options):
        """A checkpoint as isobar writes it."""
        run = self.path / "iter_0000012"
        run.mkdir()
        weights = model(1, **options)
        config = {"num_heads": HEADS, "vocab_multiple": 8, "depth": LAYERS, "global_batch_size": 8}
        safetensors_file.save(weights, run / "model.safetensors", **{"isobar.config": config})
        moments = {f"{p}.{n}": t for p, seed in (("m", 2), ("v", 3)) for n, t in model(seed, **options).items()}
        safetensors_file.save(moments, run / "optimizer.safetensors")
        (run / "state.json").write_text(json.dumps({"trainer": {"iteration": 12, "updates": 11}}))
        return run, weights, moments

    def tool(self, *arguments):
        """Exit status, and what is said on stderr."""
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                megatron_checkpoint.main(list(map(str, arguments)))
        except SystemExit as end:
            return 1, str(end)
        return 0, ""

    def same(self, one, other):
        self.assertEqual(sorted(one), sorted(other))
        for name, tensor in one.items():
            self.assertTrue(torch.equal(tensor, other[name]), name)

    def test_any_layout_and_back(self):
        for options in ({}, {"bias": False}, {"head": True}):
            for tp, pp in ((1, 1), (2, 1), (1, 2), (2, 2), (4, 4)):
                with self.subTest(tp=tp, pp=pp, **options):
                    self.begin()
                    run, weights, moments = self.run_folder(**options)
                    there = self.path / "there"
                    self.assertEqual(self.tool("to-megatron", run, there, "--tp", tp, "--pp", pp), (0, ""))
                    self.assertEqual((there / "latest_checkpointed_iteration.txt").read_text(), "12")
                    back, back_moments = self.path / "back.safetensors", self.path / "moments.safetensors"
                    status, error = self.tool("from-megatron", there, back, "--rows", ROWS, "--moments", back_moments)
                    self.assertEqual((status, error), (0, ""))
                    self.same(safetensors_file.load(back), weights)
                    self.same(safetensors_file.load(back_moments), moments)
                    self.assertEqual(megatron_checkpoint.metadata_of(back_moments), {"isobar.updates": "11"})

    def test_shards_are_those_of_megatron(self):
        """Heads lie one after another, each with its q, k and v; padded rows are zeros; a tied table is on both."""
        run, weights, _ = self.run_folder()
        there = self.path / "there"
        self.tool("to-megatron", run, there, "--tp", 2, "--pp", 2)
        states = {(t, p): torch.load(there / f"iter_0000012/mp_rank_{t:02d}_{p:03d}/model_optim_rng.pt",
                                     weights_only=False) for t in (0, 1) for p in (0, 1)}
        encoder = states[1, 1]["model"]["language_model"]["encoder"]  # heads 2 and 3 of layers 2 and 3
        size = C // HEADS
        stacked = encoder["layers.1.self_attention.query_key_value.weight"]
        self.assertEqual(tuple(stacked.shape), (3 * C // 2, C))
        for head in (2, 3):
            for i, name in enumerate("qkv"):
                here = stacked[((head - 2) * 3 + i) * size:][:size]
                self.assertTrue(torch.equal(here, weights[f"blocks.3.attn.{name}.weight"][head * size:][:size]))
        self.assertTrue(torch.equal(encoder["layers.0.mlp.dense_4h_to_h.weight"],
                                    weights["blocks.2.mlp.fc2.weight"][:, 2 * C:]))
        self.assertTrue(torch.equal(encoder["layers.0.mlp.dense_4h_to_h.bias"], weights["blocks.2.mlp.fc2.bias"]))
        table = torch.cat([states[t, 1]["model"]["word_embeddings_for_head"]["weight"] for t in (0, 1)])
        self.assertEqual(table.shape[0], 32)  # 20 rows, up to a multiple of 8 x 2
        self.assertTrue(torch.equal(table[:ROWS], weights["wte.weight"]))
        self.assertEqual(float(table[ROWS:].abs().max()), 0)
        first = states[0, 0]["optimizer"]["param_groups"]
        self.assertEqual([len(g["params"]) for g in first], [2 + 2 * 4, 2 * 8])
        self.assertEqual(first[0]["step"], 11)

    def test_weights_of_16_bits_come_from_their_copies_in_fp32(self):
        run, weights, moments = self.run_folder()
        there, back, back_moments = self.path / "there", self.path / "back.safetensors", self.path / "m.safetensors"
        self.tool("to-megatron", run, there, "--tp", 2)
        for t in (0, 1):
            file = there / f"iter_0000012/mp_rank_{t:02d}/model_optim_rng.pt"
            state = torch.load(file, weights_only=False)
            whole = megatron_checkpoint.rank_tensors(state["model"], 0)
            order = megatron_checkpoint.optimizer_order(whole)
            decayed = len(state["optimizer"]["param_groups"][0]["params"])
            copies = [whole[name] for name in order]
            adam = state["optimizer"]
            for group in adam["param_groups"]:
                del group["step"]
            for one in adam["state"].values():  # PyTorch's Adam counts here
                one["step"] = torch.tensor(7.)
            state["optimizer"] = {"optimizer": adam, "fp32_from_fp16_params": [copies[:decayed], copies[decayed:]]}
            state["model"] = megatron_checkpoint.nested({name: t.bfloat16() for name, t in whole.items()})
            torch.save(state, file)
        status, error = self.tool("from-megatron", there, back, "--rows", ROWS, "--moments", back_moments)
        self.assertEqual((status, error), (0, ""))
        self.same(safetensors_file.load(back), weights)
        self.same(safetensors_file.load(back_moments), moments)
        self.assertEqual(megatron_checkpoint.metadata_of(back_moments), {"isobar.updates": "7"})

    def test_older_orders_of_queries_keys_and_values(self):
        heads, size = 2, 3
        q, k, v = (torch.arange(heads * size * 5.).reshape(-1, 5) + 100 * i for i in range(3))
        by_head = torch.stack([t.reshape(heads, size, 5) for t in (q, k, v)])  # [3, NH, HS, C]
        for version, stacked in ((0, by_head), (1, by_head.permute(1, 2, 0, 3)), (3, by_head.permute(1, 0, 2, 3))):
            found = megatron_checkpoint.from_stacked(stacked.reshape(-1, 5), heads, version)
            for one, other in zip(found, (q, k, v)):
                self.assertTrue(torch.equal(one, other), version)

    def test_stages_of_an_interleaved_pipeline(self):
        run, weights, _ = self.run_folder()
        there = self.path / "there"
        self.tool("to-megatron", run, there, "--pp", 4)
        chunks = [torch.load(there / f"iter_0000012/mp_rank_00_{p:03d}/model_optim_rng.pt", weights_only=False)
                  for p in range(4)]
        for path in there.glob("iter_*/*"):
            (path / "model_optim_rng.pt").unlink()
            path.rmdir()
        for p in range(2):  # stage 0 holds layers 0 and 2, stage 1 holds layers 1 and 3
            state = {"args": chunks[0]["args"], "checkpoint_version": 3.0, "iteration": 12,
                     "model0": chunks[p]["model"], "model1": chunks[p + 2]["model"]}
            folder = there / f"iter_0000012/mp_rank_00_{p:03d}"
            folder.mkdir()
            torch.save(state, folder / "model_optim_rng.pt")
        back = self.path / "back.safetensors"
        self.assertEqual(self.tool("from-megatron", there, back, "--rows", ROWS), (0, ""))
        self.same(safetensors_file.load(back), weights)

    def test_nanogpt(self):
        for head in (False, True):
            with self.subTest(head=head):
                self.begin()
                run, weights, _ = self.run_folder(head=head)
                file, back = self.path / "ckpt.pt", self.path / "back.safetensors"
                self.assertEqual(self.tool("to-nanogpt", run, file), (0, ""))
                state = torch.load(file, weights_only=True)
                self.assertEqual(state["model_args"]["n_layer"], LAYERS)
                self.assertEqual(tuple(state["model"]["transformer.h.0.attn.c_attn.weight"].shape), (3 * C, C))
                state["model"] = {"_orig_mod." + n: t for n, t in state["model"].items()}  # as torch.compile names them
                torch.save(state, file)
                self.assertEqual(self.tool("from-nanogpt", file, back), (0, ""))
                self.same(safetensors_file.load(back), weights)

    def test_refusals(self):
        run, _, _ = self.run_folder()
        there = self.path / "there"
        for arguments, sentence in ((("to-megatron", run, there, "--pp", 3), "4 layers are no multiple of 3 stages"),
                                    (("from-megatron", self.path, there), "does not exist")):
            status, error = self.tool(*arguments)
            self.assertEqual(status, 1)
            self.assertIn(sentence, error)
            self.assertNotIn("Traceback", error)
        lacking = self.path / "lacking.safetensors"
        weights = model(1)
        del weights["blocks.1.attn.q.bias"]
        safetensors_file.save(weights, lacking)
        for direction in ("to-megatron", "to-nanogpt"):
            self.assertIn("the weights have blocks.1.attn.k.bias, but no blocks.1.attn.q.bias",
                          self.tool(direction, lacking, self.path / "x", "--heads", HEADS)[1])
        self.tool("to-megatron", run, there, "--tp", 2)
        (there / "iter_0000012/mp_rank_01/distrib_optim.pt").write_bytes(b"buckets")
        error = self.tool("from-megatron", there, self.path / "x", "--moments", self.path / "m")[1]
        self.assertIn("mp_rank_01/distrib_optim.pt is of a distributed optimizer", error)
        self.assertEqual(self.tool("from-megatron", there, self.path / "x"), (0, ""))
        (there / "iter_0000012/mp_rank_00/model_optim_rng.pt").unlink()
        self.assertIn("holds 1 ranks", self.tool("from-megatron", there, self.path / "x")[1])
        (there / "iter_0000012/mp_rank_01/model_optim_rng.pt").write_bytes(b"not a file of PyTorch")
        self.assertIn("cannot be read as data", self.tool("from-nanogpt",
                                                          there / "iter_0000012/mp_rank_01/model_optim_rng.pt",
                                                          self.path / "x")[1])


if __name__ == "__main__":
    unittest.main()

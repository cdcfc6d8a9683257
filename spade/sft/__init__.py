"""Warm start: supervised fine-tuning of any checkpoint on chats, programs or finished plays.

`data` reads sources into conversations, `rows` turns them into tokens exactly as they are when the model is
sampled, `train` hands both to TRL's SFTTrainer. The result is a plain checkpoint folder for `model=`.
"""

"""Chat-template and tool markup, of any family: text that could forge a turn of the conversation.

Observations are encoded with special tokens disabled, so this is a second wall; it also keeps markup out of
logs and of other people's tokenizers. Placeholders that a game may show (`<item>`, `[NORTH]`) are none of it.
"""

from __future__ import annotations

import re

_FAMILIES = (
    r"<\|[^|<>\s]{1,60}\|>",  # ChatML, Llama 3, Phi, Granite, Cohere, GLM, Kimi, OpenAI
    r"<\|[a-z_]{2,30}>|<[a-z_]{2,30}\|>",  # one-sided bars
    r"\[\|[a-z_]{2,30}\|\]",  # EXAONE
    r"<\uff5c[^>\n]{1,60}\uff5c>|<[a-z]+(?:\u2581[a-z]+)+>",  # DeepSeek
    r"\]~!?b[\[\]]|\[e~\[",  # MiniMax
    r"<\|?im_(?:start|end)\|?>",
    r"</?(?:start|end|begin)_of_[a-z]{2,20}>",  # Gemma, Granite, SmolVLM
    r"\[/?INST\]|<</?SYS>>",  # Llama 2
    r"\[/?(?:TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|AVAILABLE_TOOLS|SYSTEM_PROMPT|THINK|CALL_ID)\]",  # Mistral
    r"\[gMASK\]|\[UNUSED_TOKEN_\d+\]|\[(?:BOS|EOS)\]",
    r"</?s>|<(?:bos|eos|pad|unk|sop|eop|eod|eoh|eoa|eom)>|<fim_(?:prefix|middle|suffix|pad)>",
    r"<(?:reserved_|unused|extra_id_|SPECIAL_)\d+>|<0x[0-9A-F]{2}>",
    r"(?i:</?(?:think|thinking|thought|reasoning|tools?|tool_?calls?(?:_begin|_end)?|tool_(?:response|results?|use|outputs?)"
    r"|available_tools|function_?calls?|function_results?|arg_key|arg_value)\b[^>\n]{0,60}>)",
    r"</?(?:seed|minimax|longcat|antml|hy)[:_][a-z_]{2,30}\b[^>\n]{0,60}>",
    r"</?(?:function|parameter)=[^>\n]{0,60}>|<(?:invoke|parameter)\s+name=|</invoke>",
    r"(?m:^#{2,3} ?(?:Instruction|Response|Assistant|Human|User|System) ?:)",  # Alpaca and its kin
    r"\n\n(?:Human|Assistant):",
)
MARKUP = re.compile("|".join(_FAMILIES))
"""Finds the markup."""

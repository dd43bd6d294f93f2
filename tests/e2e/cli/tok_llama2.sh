# SPDX-License-Identifier: Apache-2.0
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/llama2 --special
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/llama2 --special --bos
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/llama2.gguf --special
printf 'It'\''s 2024: 東京 and <｜User｜>naïve <think>x</think> <|im_start|>\n\n  end' |
    $SLUICE tokenize -m $TINY/llama2.gguf --special --bos
echo '[43, 86, 9, 85, 223, 20, 18, 20, 22, 28, 223, 165, 254, 112, 301, 281, 223, 30, 174, 124,
       253, 55, 267, 84, 174, 124, 253, 32, 273, 130, 110, 296, 223, 310, 90, 311, 223, 1, 201,
       201, 223, 223, 71, 80, 70]' | $SLUICE tokenize -m $TINY/llama2 --decode --special

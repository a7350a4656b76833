"""A conditional random field over a linear chain of tags, as in `tf.contrib.crf`.

With unary scores u [batch, time, tags] and transition scores T [tags, tags], the score of a tag
sequence y is the sum of u[t, y_t] and T[y_t, y_(t+1)]. Its likelihood is exp(score), divided by the
sum of exp(score) over all tag sequences. A sequence of length 0 scores 0.

Source: tensorflow/contrib/crf/python/ops/crf.py, TensorFlow 1.15.
"""

from typing import Any

import numpy as np
import tensorflow as tf

_tf1 = tf.compat.v1


def crf_unary_score(tag_indices: Any, sequence_lengths: Any, inputs: Any) -> tf.Tensor:
    """Returns the sum of the unary scores of each sequence's tags, [batch]."""
    inputs = tf.convert_to_tensor(inputs)
    scores = tf.gather(inputs, tf.cast(tag_indices, tf.int32), axis=2, batch_dims=2)
    return tf.reduce_sum(scores * _mask(sequence_lengths, inputs), axis=1)


def crf_binary_score(tag_indices: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns the sum of the transition scores of each sequence's tags, [batch]."""
    tags = tf.cast(tag_indices, tf.int32)
    transitions = tf.convert_to_tensor(transition_params)
    pairs = tf.stack([tags[:, :-1], tags[:, 1:]], axis=2)
    scores = tf.gather_nd(transitions, pairs)
    lengths = tf.maximum(tf.cast(sequence_lengths, tf.int64) - 1, 0)
    return tf.reduce_sum(
        scores * tf.sequence_mask(lengths, tf.shape(pairs)[1], scores.dtype), axis=1
    )


def crf_sequence_score(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Returns the score of each sequence's tags, [batch]."""
    return crf_unary_score(tag_indices, sequence_lengths, inputs) + crf_binary_score(
        tag_indices, sequence_lengths, transition_params
    )


def crf_multitag_sequence_score(
    inputs: Any, tag_bitmap: Any, sequence_lengths: Any, transition_params: Any
) -> tf.Tensor:
    """Returns log sum exp(score) over the tag sequences that a bitmap allows, [batch]."""
    inputs = tf.convert_to_tensor(inputs)
    allowed = tf.where(tf.cast(tag_bitmap, tf.bool), inputs, inputs.dtype.min)
    return crf_log_norm(allowed, sequence_lengths, transition_params)


def crf_log_norm(inputs: Any, sequence_lengths: Any, transition_params: Any) -> tf.Tensor:
    """Returns log sum exp(score) over all tag sequences of each sample, [batch]."""
    lengths = tf.cast(sequence_lengths, tf.int64)
    alphas = crf_forward(inputs, None, transition_params, lengths)
    return tf.where(lengths <= 0, tf.zeros_like(alphas[:, 0]), tf.reduce_logsumexp(alphas, axis=1))


def crf_forward(
    inputs: Any, state: Any, transition_params: Any, sequence_lengths: Any
) -> tf.Tensor:
    """Returns log sum exp(score) over the tag sequences with each last tag, [batch, tags].

    `state` has these sums before `inputs`. If None, the first inputs start the chain.
    """
    inputs, transitions = tf.convert_to_tensor(inputs), tf.convert_to_tensor(transition_params)
    lengths = tf.cast(sequence_lengths, tf.int64)
    if state is None:
        state, inputs, lengths = inputs[:, 0], inputs[:, 1:], lengths - 1

    def step(alphas: tf.Tensor, given: Any) -> tf.Tensor:
        scores, time = given
        new = tf.reduce_logsumexp(alphas[:, :, None] + transitions, axis=1) + scores
        return tf.where((time < lengths)[:, None], new, alphas)

    return tf.foldl(step, _by_time(inputs), initializer=state)


def crf_log_likelihood(
    inputs: Any, tag_indices: Any, sequence_lengths: Any, transition_params: Any = None
) -> tuple[tf.Tensor, Any]:
    """Returns the log-likelihood of each sequence's tags, [batch], and the transition scores.

    By default, the transition scores are the variable `transitions` of the variable scope.
    """
    inputs = tf.convert_to_tensor(inputs)
    if transition_params is None:
        tags = inputs.shape[2]
        transition_params = _tf1.get_variable("transitions", [tags, tags])
    score = crf_sequence_score(inputs, tag_indices, sequence_lengths, transition_params)
    return score - crf_log_norm(inputs, sequence_lengths, transition_params), transition_params


def crf_decode(
    potentials: Any, transition_params: Any, sequence_length: Any
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the tags with the highest score, int32 [batch, time], and that score, [batch].

    Tags beyond the end of a sequence are 0.
    """
    inputs, transitions = tf.convert_to_tensor(potentials), tf.convert_to_tensor(transition_params)
    # As in TensorFlow 1.15, a sequence has at least its first element.
    lengths = tf.maximum(tf.cast(sequence_length, tf.int64), 1)
    tags = tf.shape(inputs)[2]

    def forward(before: Any, given: Any) -> Any:
        scores, time = given
        through = before[0][:, :, None] + transitions
        goes_on = (time < lengths - 1)[:, None]
        same = tf.broadcast_to(tf.range(tags), tf.shape(before[0]))
        new = tf.reduce_max(through, axis=1) + scores
        pointer = tf.argmax(through, axis=1, output_type=tf.int32)
        return tf.where(goes_on, new, before[0]), tf.where(goes_on, pointer, same)

    first = inputs[:, 0]
    start = first, tf.zeros_like(first, tf.int32)
    # `scan` needs an element: this padding lies behind the end of every sequence.
    padded = tf.concat([inputs[:, 1:], inputs[:, :1]], axis=1)
    best, pointers = tf.scan(forward, _by_time(padded), initializer=start)
    last = tf.argmax(best[-1], axis=1, output_type=tf.int32)

    def backward(tag: tf.Tensor, pointer: tf.Tensor) -> tf.Tensor:
        return tf.gather(pointer, tag, axis=1, batch_dims=1)

    found = tf.transpose(tf.scan(backward, pointers, initializer=last, reverse=True))
    mask = tf.sequence_mask(lengths, tf.shape(inputs)[1])
    return tf.where(mask, found, 0), tf.reduce_max(best[-1], axis=1)


def viterbi_decode(score: Any, transition_params: Any) -> tuple[list[int], Any]:
    """Returns the tags with the highest score of a NumPy sequence [time, tags], and that score."""
    trellis, pointers = np.array(score), np.zeros(np.shape(score), np.int32)
    for time in range(1, len(trellis)):
        through = trellis[time - 1][:, None] + transition_params
        trellis[time] += through.max(0)
        pointers[time] = through.argmax(0)
    tags = [int(trellis[-1].argmax())]
    for pointer in pointers[:0:-1]:
        tags.append(int(pointer[tags[-1]]))
    return tags[::-1], trellis[-1].max()


def _by_time(inputs: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    times = tf.range(tf.cast(tf.shape(inputs)[1], tf.int64))
    return tf.transpose(inputs, [1, 0, 2]), times


def _mask(lengths: Any, inputs: tf.Tensor) -> tf.Tensor:
    return tf.sequence_mask(lengths, tf.shape(inputs)[1], inputs.dtype)

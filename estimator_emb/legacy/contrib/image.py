"""Projective transforms of images, as in `tf.contrib.image`.

A transform [a0, a1, a2, b0, b1, b2, c0, c1] maps the point (x, y) of an output to the point
((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k) of the input, with k = c0 x + c1 y + 1. Points
outside of the input are 0. TensorFlow has the op, but no public function.

Source: tensorflow/contrib/image/python/ops/image_ops.py, TensorFlow 1.15.
"""

from typing import Any

import tensorflow as tf

_TYPES = (tf.uint8, tf.int32, tf.int64, tf.float16, tf.float32, tf.float64)


def rotate(images: Any, angles: Any, interpolation: str = "NEAREST", name: Any = None) -> tf.Tensor:
    """Rotates images counterclockwise by an angle in radians, shared or per image."""
    with tf.name_scope(name or "rotate"):
        batch = _batch(images)
        height, width = (tf.cast(tf.shape(batch)[axis], tf.float32)[None] for axis in (1, 2))
        transforms = angles_to_projective_transforms(angles, height, width)
        return transform(images, transforms, interpolation)


def translate(
    images: Any, translations: Any, interpolation: str = "NEAREST", name: Any = None
) -> tf.Tensor:
    """Moves images by [dx, dy], shared or per image."""
    with tf.name_scope(name or "translate"):
        return transform(images, translations_to_projective_transforms(translations), interpolation)


def transform(
    images: Any,
    transforms: Any,
    interpolation: str = "NEAREST",
    output_shape: Any = None,
    name: Any = None,
) -> tf.Tensor:
    """Applies a transform to images, shared or per image.

    Args:
      images: [N, height, width, channels], or without N, or without N and channels.
      transforms: [8] or [N, 8].
      interpolation: 'NEAREST' or 'BILINEAR'.
      output_shape: [height, width] of the result. None keeps the size of the images.
      name: name scope of the ops.

    Raises:
      TypeError: the images have an unsupported rank or type.
    """
    with tf.name_scope(name or "transform"):
        rank, batch = tf.convert_to_tensor(images).shape.rank, _batch(images)
        transforms = _rows(transforms, "Transforms", 1)
        if output_shape is None:
            output_shape = tf.shape(batch)[1:3]
        output_shape = tf.convert_to_tensor(output_shape, tf.int32)
        if not output_shape.shape.is_compatible_with([2]):
            raise ValueError(
                "transform: output_shape must be a 1-D Tensor of 2 elements: new_height, "
                f"new_width; got {output_shape}."
            )
        result = tf.raw_ops.ImageProjectiveTransformV3(
            images=batch,
            transforms=transforms,
            output_shape=output_shape,
            fill_value=0.0,
            interpolation=interpolation.upper(),
            fill_mode="CONSTANT",
        )
        if rank == 4:
            return result
        return result[0] if rank == 3 else result[0, :, :, 0]


def angles_to_projective_transforms(
    angles: Any, image_height: Any, image_width: Any, name: Any = None
) -> tf.Tensor:
    """Returns the transforms [N, 8] that rotate images of this size around their centre."""
    with tf.name_scope(name or "angles_to_projective_transforms"):
        angles = _rows(angles, "Angles", 0)
        cos, sin = tf.cos(angles), tf.sin(angles)
        width, height = image_width - 1, image_height - 1
        x = (width - (cos * width - sin * height)) / 2.0
        y = (height - (sin * width + cos * height)) / 2.0
        zero = tf.zeros_like(angles)
        return tf.stack([cos, -sin, x + zero, sin, cos, y + zero, zero, zero], axis=1)


def translations_to_projective_transforms(translations: Any, name: Any = None) -> tf.Tensor:
    """Returns the transforms [N, 8] that move images by [dx, dy]."""
    with tf.name_scope(name or "translations_to_projective_transforms"):
        x, y = tf.unstack(_rows(translations, "Translations", 1), num=2, axis=1)
        zero, one = tf.zeros_like(x), tf.ones_like(x)
        return tf.stack([one, zero, -x, zero, one, -y, zero, zero], axis=1)


def compose_transforms(*transforms: Any) -> tf.Tensor:
    """Returns a single transform that applies several transforms in order."""
    if not transforms:
        raise ValueError("compose_transforms: transforms must have one at least.")
    composed = flat_transforms_to_matrices(transforms[0])
    for one in transforms[1:]:
        composed = tf.matmul(composed, flat_transforms_to_matrices(one))
    return matrices_to_flat_transforms(composed)


def flat_transforms_to_matrices(transforms: Any) -> tf.Tensor:
    """Returns transforms [8] or [N, 8] as matrices [N, 3, 3]."""
    rows = _rows(transforms, "Transforms", 1)
    return tf.reshape(tf.concat([rows, tf.ones_like(rows[:, :1])], axis=1), [-1, 3, 3])


def matrices_to_flat_transforms(transform_matrices: Any) -> tf.Tensor:
    """Returns matrices [3, 3] or [N, 3, 3] as transforms [N, 8]."""
    flat = tf.reshape(tf.convert_to_tensor(transform_matrices, tf.float32), [-1, 9])
    return (flat / flat[:, 8:])[:, :8]


def _batch(images: Any) -> tf.Tensor:
    images = tf.convert_to_tensor(images)
    if images.dtype.base_dtype not in _TYPES:
        names = ", ".join(one.name for one in _TYPES)
        raise TypeError(f"Invalid dtype {images.dtype.name} of images. It must be one of {names}.")
    if images.shape.rank not in (2, 3, 4):
        raise TypeError(f"Images should have rank between 2 and 4; got {images}.")
    if images.shape.rank == 4:
        return images
    return images[None] if images.shape.rank == 3 else images[None, :, :, None]


def _rows(values: Any, owner: str, rank: int) -> tf.Tensor:
    """Returns values of this rank as a batch of size 1. Batches stay unchanged."""
    values = tf.convert_to_tensor(values, tf.float32)
    if values.shape.rank not in (rank, rank + 1):
        raise TypeError(f"{owner} should have rank {rank} or {rank + 1}; got {values}.")
    return values[None] if values.shape.rank == rank else values
